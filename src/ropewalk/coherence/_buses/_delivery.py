"""Calling subscribers: each has a bounded queue, and who is slow or raises delays nobody.

One thread calls all who are quick. Who is found to be slow keeps the thread that called it,
and another goes on with the rest. Threads end when there is nothing to do.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable

QUEUE = 1024
"""How many messages may wait for one subscriber."""

_TURN = 32  # Messages that one subscriber gets before others have their turn.
_PATIENCE = 0.05  # Seconds in one turn after which a subscriber is slow, if others wait.
_SOONEST = 0.005
_LINGERS = 2.0  # Seconds that a thread stays although nothing comes.
_CLOSES = 0.25  # Seconds that closing waits for a call to end.

_log = logging.getLogger("ropewalk.coherence")


class Mailbox:
    """What waits for one subscriber."""

    __slots__ = (
        "bell", "call", "closed", "limit", "lost", "name", "overflow", "queued", "raised", "waiting"
    )  # fmt: skip

    def __init__(
        self,
        call: Callable[[bytes], None],
        overflow: Callable[[], None] | None,
        *,
        limit: int = QUEUE,
        name: str = "",
    ) -> None:
        self.call = call
        self.overflow = overflow
        """Called, under the lock, when something had to be dropped."""
        self.limit = limit
        self.name = name
        self.waiting: list[bytes] = []  # Most often empty, and then small.
        self.queued = False
        """Whether it is in line, or a thread is at it."""
        self.bell: threading.Condition | None = None
        """Rung for the thread of its own, if it was found to be slow."""
        self.closed = False
        self.raised = False
        self.lost = 0

    def empty(self) -> None:
        """Forget what waits, and who was at it."""
        self.waiting.clear()
        self.queued, self.bell = False, None


class Crew:
    """The threads that call subscribers."""

    def __init__(self) -> None:
        self._closed = False
        self.begin()

    def begin(self) -> None:
        """Begin with no thread, also in a child whose threads are gone."""
        self.lock = threading.RLock()
        self._news = threading.Condition(self.lock)
        self._line: deque[Mailbox] = deque()
        self._leader: threading.Thread | None = None
        self._watcher: threading.Thread | None = None
        self._over = threading.Event()
        self._turn = 0
        self._serving: Mailbox | None = None
        self.failures = 0
        """How often a subscriber raised."""

    def put(self, boxes: Iterable[Mailbox], message: bytes) -> None:
        """Let each of these be called with a message."""
        with self.lock:
            if self._closed:
                return
            for box in boxes:
                if len(box.waiting) >= box.limit:
                    del box.waiting[0]
                    box.lost += 1
                    if box.overflow is not None:
                        box.overflow()
                box.waiting.append(message)
                if not box.queued:
                    box.queued = True
                    if box.bell is not None:
                        self._start(self._attend, box)
                    else:
                        self._line.append(box)
                elif box.bell is not None:
                    box.bell.notify()
            if self._line:
                self._lead_on()

    def put_later(self, boxes: Iterable[Mailbox], message: bytes) -> None:
        """Let each of these, which are empty, be called when there is something for anybody."""
        for box in boxes:
            box.waiting.append(message)
            box.queued = True
            self._line.append(box)

    def close(self) -> None:
        """Call nobody any more."""
        with self.lock:
            self._closed = True
            self._over.set()
            self._line.clear()
            self._news.notify_all()
            leader = self._leader
        if leader is not None and leader is not threading.current_thread():
            leader.join(_CLOSES)

    # Threads. All but the calls themselves happens under the lock.

    def _lead_on(self) -> None:
        if self._leader is None:
            self._leader = self._start(self._lead)
        elif self._serving is None:
            self._news.notify()
        if self._watcher is None and self._serving is not None:
            self._watcher = self._start(self._watch)

    def _start(self, target: Callable[..., None], *arguments: Mailbox) -> threading.Thread:
        thread = threading.Thread(target=target, args=arguments, name="ropewalk-bus", daemon=True)
        thread.start()
        return thread

    def _lead(self) -> None:
        """Call who is next in line, until somebody else has to."""
        me = threading.current_thread()
        while True:
            with self.lock:
                while not self._line:
                    if self._closed or not self._news.wait(_LINGERS):
                        if self._line and not self._closed:
                            continue
                        self._leader = None
                        return
                box = self._line.popleft()
                messages = self._take(box)
                self._turn += 1
                self._serving = box
                if self._line and self._watcher is None:
                    self._watcher = self._start(self._watch)
            self._call(box, messages)
            with self.lock:
                if self._leader is not me:
                    break
                self._serving = None
                box.queued = bool(box.waiting)
                if box.queued:
                    self._line.append(box)
        self._attend(box)

    def _attend(self, box: Mailbox) -> None:
        """Call one that is slow, on a thread of its own."""
        while True:
            with self.lock:
                assert box.bell is not None
                while not box.waiting:
                    heard = box.bell.wait(_LINGERS)
                    if box.closed or self._closed or not (heard or box.waiting):
                        box.queued = False
                        return
                messages = self._take(box)
            self._call(box, messages)

    def _watch(self) -> None:
        """See that nobody waits for one who is slow."""
        seen, idle, found = -1, 0.0, 0
        # Where one is slow, others may be: they are found sooner.
        while not self._over.wait(max(_PATIENCE / (1 + found), _SOONEST)):
            with self.lock:
                idle = 0.0 if self._serving is not None else idle + _PATIENCE
                if idle > _LINGERS:
                    self._watcher = None
                    return
                stuck = self._serving is not None and self._turn == seen and self._line
                found = found + 1 if stuck else 0
                if stuck:
                    self._part()
                seen = self._turn

    def _part(self) -> None:
        """Leave a slow one to the thread that is at it, and go on with another."""
        assert self._serving is not None
        self._serving.bell = threading.Condition(self.lock)
        self._serving = None
        self._leader = self._start(self._lead)

    def _take(self, box: Mailbox) -> list[bytes]:
        messages = box.waiting[:_TURN]
        del box.waiting[:_TURN]
        return messages

    def _call(self, box: Mailbox, messages: list[bytes]) -> None:
        for message in messages:
            if box.closed or self._closed:
                return
            try:
                box.call(message)
            except Exception as error:  # noqa: BLE001 - whatever a subscriber raises is its own
                self._failed(box, error)

    def _failed(self, box: Mailbox, error: Exception) -> None:
        with self.lock:
            self.failures += 1
            known, box.raised = box.raised, True
        if not known:
            _log.warning("a subscriber of %s raised %r; more of it is not said", box.name, error)
