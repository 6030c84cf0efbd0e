"""The bus that follows a space's operation log, for engines without publish and subscribe."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial

from ropewalk.coherence.authority import BRANCH, NAME
from ropewalk.coherence.bus import Invalidation, Subscription, place_of, space_topic
from ropewalk.coherence.local_bus import QUEUE, Exchange
from ropewalk.coherence.timers import pauses, tell_after_fork
from ropewalk.errors import FormatError, Rewound, RopewalkError, StoreClosed
from ropewalk.store import Operation, Store, ref_name
from ropewalk.store._names import decode_part
from ropewalk.store._watching import Patience, watch
from ropewalk.store.forking import freed_after_fork
from ropewalk.tree import ObjectId, read_commit

_LOOKS = 1.0  # Seconds after which a thread that follows looks whether it is still wanted.
_REMEMBERED = 4096
_NO_REFS = ref_name("none", "none")  # Asks for a space's number alone.

_log = logging.getLogger("ropewalk.coherence")


class LogBus:
    """A `Bus` that tells what the operation log of one space says, also of other processes.

    What is published goes to the subscribers of this object at once; all others read it in the
    log, as soon as the store's `watch` sees it. So nothing is lost, and content is not carried.
    In a forked process the log is followed after the first subscription. Closing it leaves the
    store open.
    """

    def __init__(self, store: Store, space: str, *, queue: int = QUEUE) -> None:
        self._store, self._space = store, space
        self._read = store.reader(space)
        self._place = place_of(store, space)
        self._exchange = Exchange(queue)
        self.listeners = self._exchange.listeners
        """How many subscribed to a topic through this object; all others read it in the log."""
        self._over = freed_after_fork(threading.Event())
        self.failures = 0
        self._begin()
        tell_after_fork(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._told: dict[int, None] = {}
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._space} in {self._store!r}>"

    def publish(self, topic: str, message: bytes) -> None:
        """Hand a message to the subscribers of this object."""
        if not self._exchange.listeners(topic):
            return
        try:
            sequence = Invalidation.decode(message).sequence
        except FormatError:
            sequence = 0
        self.note_told(sequence)
        self._exchange.deliver(topic, message)

    def note_told(self, sequence: int) -> None:
        """Whoever listens here knows of an operation: it need not be told when it is in the log."""
        with self._lock:
            self._told[sequence] = None
            while len(self._told) > _REMEMBERED:
                del self._told[next(iter(self._told))]

    def subscribe(
        self, topic: str, receive: Callable[[bytes], None], gap: Callable[[], None] | None = None
    ) -> Subscription:
        """Call `receive` with the messages of a topic, on a thread of the bus."""
        entry = self._exchange.add(topic, receive, gap)
        with self._lock:
            if self._thread is None and not self._over.is_set():
                self._thread = self._follow_from(self._now())
        return entry

    def on_gap(self, doubt: Callable[[], None]) -> Callable[[], None]:
        """Call `doubt` when the log could not be read; the way to stop that."""
        return self._exchange.on_gap(doubt)

    def close(self) -> None:
        """Follow no more. The thread ends within a second."""
        self._over.set()
        self._exchange.close()

    def after_fork(self) -> None:
        """Begin anew in a child."""
        self._begin()
        self._exchange.after_fork()

    # Following.

    def _now(self) -> int | None:
        """The number of the last operation; None if the store does not answer."""
        try:
            return self._store.view(self._space, _NO_REFS).sequence
        except RopewalkError:
            return None

    def _follow_from(self, number: int | None) -> threading.Thread:
        thread = threading.Thread(
            target=self._follow, args=(number,), name="ropewalk-bus-log", daemon=True
        )
        thread.start()
        return thread

    def _follow(self, after: int | None) -> None:
        store, space, pause = self._store, self._space, pauses()
        look = None if after is None else store._looking(space, after)
        while not self._over.is_set():
            try:
                if look is None:
                    look = store._looking(space, store.view(space, _NO_REFS).sequence)
                    self._exchange.doubt()
                patience = Patience(_LOOKS, store.poll_seconds)
                for operation in watch(look, partial(store._waking, space), patience):
                    if self._over.is_set():
                        return
                    pause = pauses()
                    self._tell(operation)
            except StoreClosed:
                return
            except Rewound:
                look = None  # The numbers of what was told come again, for something else.
                with self._lock:
                    self._told.clear()
            except Exception as error:  # noqa: BLE001 - whatever it is, the log is read on
                if not threading.main_thread().is_alive():
                    return  # The program ends, and no thread can be started any more.
                self.failures += 1
                if self.failures == 1:
                    _log.warning("%r cannot be followed: %s; more of it is not said", self, error)
                self._exchange.doubt()
                self._over.wait(next(pause))

    def _tell(self, operation: Operation) -> None:
        with self._lock:
            if self._told.pop(operation.sequence, self) is None:
                return  # Who listens here has heard of it.
        everybody = space_topic(self._place)
        for move in operation.moves:
            kind, _, part = move.name.partition("/")
            topics = (f"{self._place}/{part}", everybody)  # As `topic_of` spells it.
            wanted = kind == BRANCH and any(map(self._exchange.listeners, topics))
            if wanted and move.target is not None:
                message = self._message(operation, part, move.target)
                for topic in topics:
                    self._exchange.deliver(topic, message)

    def _message(self, operation: Operation, part: str, id: ObjectId) -> bytes:
        (found,) = self._read([id])
        commit = read_commit(found)
        artifact = str(commit.extension.get(NAME, decode_part(part)))
        before = commit.generation - 1
        told = Invalidation(
            artifact, commit.generation, before, operation.sequence, commit.agent, ""
        )
        return told.encode()
