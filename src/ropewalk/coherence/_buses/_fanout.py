"""Telling others of writes, off the writer's path."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

from ropewalk.coherence._buses._bus import Bus, Invalidation, space_topic, topic_of
from ropewalk.coherence._forking import tell_after_fork

LIMIT = 1024
"""How many messages may wait to be published, and for how many artifacts after that."""

_LINGERS = 2.0  # Seconds that the thread stays although nothing is to be told.

_log = logging.getLogger("ropewalk.coherence")


class Fanout:
    """Publishes what a client wrote, with one message for several versions of an artifact.

    `everybody` publishes to the topic of the space as well. `lost` counts what was dropped
    because the bus is stuck, `failures` what the bus refused: neither is told to a writer.
    """

    def __init__(
        self, bus: Bus, place: str, *, everybody: bool = False, limit: int = LIMIT
    ) -> None:
        self._bus = bus
        self._place = place
        self._everybody = everybody
        self._limit = limit
        self._listeners: Callable[[str], int] | None = getattr(bus, "listeners", None)
        self._note_told: Callable[[int], None] | None = getattr(bus, "note_told", None)
        self._closed = False
        self.published = 0
        self.failures = 0
        self.lost = 0
        self._begin()
        tell_after_fork(self)

    def _begin(self) -> None:
        self._inbox: SimpleQueue[Invalidation | threading.Event] = SimpleQueue()
        self._lock = threading.Lock()
        self._pending: dict[str, Invalidation] = {}
        self._flushes: list[threading.Event] = []
        self._thread: threading.Thread | None = None

    after_fork = _begin

    def tell(self, invalidation: Invalidation, own: int = 0) -> None:
        """Let others know, soon. Never waits and never raises.

        `own` is how many of the subscriptions that would be told are this client's: if there
        are no others, nothing is done.
        """
        if self._closed:
            return
        if self._listeners is not None and self._listening(invalidation) <= own:
            if self._note_told is not None:
                self._note_told(invalidation.sequence)
            return
        inbox = self._inbox
        inbox.put(invalidation)
        if self._thread is None:
            self._start()
        if inbox.qsize() > self._limit:
            with self._lock:
                self._collect()
            inbox.put(threading.Event())  # The thread may wait for the first of what was moved.

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until all that was told before is with the bus; False if the time is over."""
        if self._thread is None and self._inbox.empty():
            return True
        done = threading.Event()
        self._inbox.put(done)
        if self._thread is None:
            self._start()
        return done.wait(timeout)

    def close(self, timeout: float = 1.0) -> None:
        """Publish what is left, as far as that takes no longer than `timeout`, and end."""
        if self._closed:
            return
        self._closed = True
        if self._thread is not None or not self._inbox.empty():
            self.flush(timeout)
        self._inbox.put(threading.Event())

    def _listening(self, invalidation: Invalidation) -> int:
        assert self._listeners is not None
        found = self._listeners(topic_of(self._place, invalidation.artifact))
        return found + self._listeners(space_topic(self._place)) if self._everybody else found

    # The thread.

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="ropewalk-fanout", daemon=True
                )
                try:
                    self._thread.start()
                except RuntimeError:  # The process ends, or has no room for a thread.
                    self._thread = None

    def _run(self) -> None:
        me = threading.current_thread()
        while True:
            try:
                first = self._inbox.get(timeout=_LINGERS)
            except Empty:
                if self._ends(me):
                    return
                continue
            with self._lock:
                self._collect(first)
                pending, self._pending = self._pending, {}
                done, self._flushes = self._flushes, []
            for one in pending.values():
                self._publish(one)
            for event in done:
                event.set()
            if self._closed and self._ends(me):
                return

    def _ends(self, me: threading.Thread) -> bool:
        """Whether this thread is to end. Who tells looks at `_thread` after handing over."""
        self._thread = None
        if self._inbox.empty():
            return True
        with self._lock:
            if self._thread is None:
                self._thread = me
            return self._thread is not me

    def _collect(self, first: Invalidation | threading.Event | None = None) -> None:
        """Make one message for each artifact of what waits."""
        pending, one = self._pending, first
        while one is not None or not self._inbox.empty():
            if one is None:
                try:
                    one = self._inbox.get_nowait()
                except Empty:
                    break
            if isinstance(one, threading.Event):
                self._flushes.append(one)
            else:
                before = pending.pop(one.artifact, None)
                pending[one.artifact] = one if before is None else one.merged(before)
            one = None
        while len(pending) > self._limit:
            del pending[next(iter(pending))]
            self.lost += 1

    def _publish(self, one: Invalidation) -> None:
        try:
            message = one.encode()
            limit = getattr(self._bus, "message_limit", None)
            if limit is not None and len(message) > limit and one.content is not None:
                message = one._replace(content=None).encode()
            self._bus.publish(topic_of(self._place, one.artifact), message)
            if self._everybody:
                self._bus.publish(space_topic(self._place), message)
            self.published += 1
        except Exception as error:  # noqa: BLE001 - a writer is never told what a bus raises
            self.failures += 1
            if self.failures == 1:
                _log.warning("the bus refused a message with %r; more of it is not said", error)
