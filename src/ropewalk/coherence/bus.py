"""What a bus is, what it carries, and the bus inside one process.

A bus carries hints. It may lose, delay, repeat and reorder them, and nothing becomes wrong:
what is served is decided by versions and leases. A bus that does its work makes it fast.

All buses deliver in the same way. Each subscriber has a bounded queue (`Mailbox`), and one that
is slow or raises does not delay the others. One leader thread calls all subscribers in turn; a
watcher notices when a call takes long, leaves that thread to the slow subscriber and starts
another leader. Idle threads end.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple, Protocol, runtime_checkable

import ormsgpack

from ropewalk.coherence.authority import branch_of
from ropewalk.errors import FormatError
from ropewalk.store import Store
from ropewalk.store.forking import reset_after_fork
from ropewalk.store.names import encode_part

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""A longer message is not read: content of that size is fetched."""

_FORMAT = 1
_FRONT = bytes([_FORMAT])
_TYPES = ([str, int, int, int, str, str, type(None)], [str, int, int, int, str, str, bytes])


class Subscription(Protocol):
    """The right to be called with the messages of a topic."""

    def close(self) -> None:
        """Receive no more: no call begins after this. Closing again does nothing."""


@runtime_checkable
class Bus(Protocol):
    """Carries messages to the subscribers of their topic, soon and perhaps.

    Safe to use from any thread. Beside these methods a bus may have `listeners(topic) -> int`,
    if it knows how many subscribed, wherever they are, and `message_limit: int`, if it cannot
    carry more bytes in one message. Then nothing is sent where nobody listens, and content
    that is too large is left out.
    """

    def publish(self, topic: str, message: bytes) -> None:
        """Hand a message over. Waits neither for subscribers nor for a server, and may lose it.

        A server that is away is no error.
        """

    def subscribe(
        self, topic: str, receive: Callable[[bytes], None], gap: Callable[[], None] | None = None
    ) -> Subscription:
        """Call `receive` with the messages of a topic, on a thread of the bus, one at a time.

        `gap` is called when messages of this subscription may have been lost, for example
        because it was too slow. What is lost for everybody is reported to `on_gap`. A
        subscription is in force when this returns, unless the server is away: then `on_gap` is
        called as soon as it is.
        """

    def on_gap(self, doubt: Callable[[], None]) -> Callable[[], None]:
        """Call `doubt` whenever messages may have been lost; the way to stop that.

        A bus that lost its connection calls it then, and once it receives everything again.
        """

    def close(self) -> None:
        """Let go of everything; nobody is called any more. Closing again does nothing."""


class Invalidation(NamedTuple):
    """One message: an artifact is at `version` now."""

    artifact: str
    version: int
    since: int
    """The version that the sender announced before; messages on later ones may be on their way."""
    sequence: int
    """The number of the space's operation that made the version."""
    issuer: str
    """The agent that wrote it."""
    instance: str
    """The client that sent this."""
    content: bytes | None = None
    """What was written, where the strategy sends it along."""

    def encode(self) -> bytes:
        """The one spelling of this message."""
        return _FRONT + ormsgpack.packb(list(self))

    @classmethod
    def decode(cls, data: bytes) -> Invalidation:
        """Read a message; `FormatError` if it is not one of ours."""
        if type(data) is not bytes or not data or len(data) > MAX_MESSAGE_BYTES:
            raise FormatError("this is no invalidation: it has no bytes, or too many")
        if data[0] != _FORMAT:
            raise FormatError(f"an invalidation of format {data[0]}: this version reads {_FORMAT}")
        try:
            record = ormsgpack.unpackb(data[1:])
        except ValueError as error:
            raise FormatError(f"an invalidation cannot be read: {error}") from None
        if type(record) is not list or [type(part) for part in record] not in _TYPES:
            raise FormatError("an invalidation's record is not Ropewalk's")
        found = cls(*record)
        if not 0 <= found.since < found.version or found.sequence < 0 or found.artifact == "":
            raise FormatError("an invalidation's numbers are not Ropewalk's")
        if found.encode() != data:
            raise FormatError("an invalidation is not in its one accepted form")
        return found

    def merged(self, other: Invalidation) -> Invalidation:
        """One message for two of the same artifact: the newer, since what the older knew."""
        newer = self if self.version >= other.version else other
        since = min(self.since, other.since)
        return newer if since == newer.since else newer._replace(since=since)


class Receiver:
    """Reads messages for a function that takes invalidations; what is not one, is dropped.

    So is a message on another artifact than the one whose topic it came by.
    """

    __slots__ = ("_artifact", "_handle", "dropped")

    def __init__(self, handle: Callable[[Invalidation], None], artifact: str | None = None) -> None:
        self._handle, self._artifact = handle, artifact
        self.dropped = 0
        """How many messages were no invalidations."""

    def __call__(self, message: bytes) -> None:
        """Take one message."""
        try:
            found = Invalidation.decode(message)
        except FormatError:
            self.dropped += 1
            return
        if self._artifact in (None, found.artifact):
            self._handle(found)
        else:
            self.dropped += 1


def place_of(store: Store, space: str) -> str:
    """A space of one store, as topics name it: stores that share a server do not meet there."""
    return f"{store.header.store_id.hex()}/{space}"


@lru_cache(maxsize=4096)
def topic_of(place: str, artifact: str) -> str:
    """The topic of one artifact of a place, which `place_of` names."""
    return f"{place}/{encode_part(branch_of(artifact))}"


def space_topic(place: str) -> str:
    """The topic of everything at a place."""
    return place


# Delivery.

QUEUE = 1024
"""How many messages may wait for one subscriber."""

_TURN = 32  # Messages that one subscriber gets before others have their turn.
_PATIENCE = 0.05  # Seconds in one turn after which a subscriber is slow, if others wait.
_SOONEST = 0.005
_LINGERS = 2.0  # Seconds that a thread stays although nothing comes.
_CLOSES = 0.25  # Seconds that closing waits for a call to end.

_log = logging.getLogger("ropewalk.coherence")


class Mailbox:
    """The message queue of one subscriber."""

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
        """Called, under the lock, when a message was dropped because the queue was full."""
        self.limit = limit
        self.name = name
        self.waiting: list[bytes] = []  # Most often empty, and then small.
        self.queued = False
        """Whether it is scheduled, or a thread is calling its subscriber."""
        self.bell: threading.Condition | None = None
        """Wakes its own thread, which it has once it was found to be slow."""
        self.closed = False
        self.raised = False
        self.lost = 0

    def empty(self) -> None:
        """Drop all messages, and the thread of its own."""
        self.waiting.clear()
        self.queued, self.bell = False, None


class Dispatcher:
    """The threads that call subscribers."""

    def __init__(self) -> None:
        self._closed = False
        self.begin()

    def begin(self) -> None:
        """Reset to no threads, also in the child of a fork."""
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
        """Queue a message for each of these subscribers; full queues drop their oldest one."""
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
        """Queue a message in empty mailboxes without waking a thread: it goes with the next."""
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
        """The leader thread: call the next subscriber, until another leader was started."""
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
        """The thread of a slow subscriber."""
        while True:
            with self.lock:
                assert box.bell is not None
                while not box.waiting:
                    is_woken = box.bell.wait(_LINGERS)
                    if box.closed or self._closed or not (is_woken or box.waiting):
                        box.queued = False
                        return
                messages = self._take(box)
            self._call(box, messages)

    def _watch(self) -> None:
        """The watcher thread: give a slow subscriber a thread of its own."""
        seen, idle, found = -1, 0.0, 0
        # After a slow subscriber look more often, because the next may be slow too.
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
        """Leave the current thread to its slow subscriber, and start another leader."""
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


class Exchange:
    """Topics, and the subscribers of each. Safe to share."""

    def __init__(self, queue: int = QUEUE) -> None:
        self._queue = queue
        self._topics: dict[str, dict[Mailbox, None]] = {}
        self._doubters: dict[Mailbox, None] = {}
        self._gaps: dict[Mailbox, None] = {}
        self._dispatcher = Dispatcher()

    @property
    def failures(self) -> int:
        """How often a subscriber raised."""
        return self._dispatcher.failures

    def listeners(self, topic: str) -> int:
        """How many subscribed to a topic."""
        boxes = self._topics.get(topic)
        return 0 if boxes is None else len(boxes)

    def topics(self) -> list[str]:
        """What somebody subscribed to."""
        with self._dispatcher.lock:
            return list(self._topics)

    def deliver(self, topic: str, message: bytes) -> None:
        """Let the subscribers of a topic be called."""
        if topic not in self._topics:
            return
        with self._dispatcher.lock:
            self._dispatcher.put(self._topics.get(topic, ()), message)

    def doubt(self) -> None:
        """Let everybody know that messages may have been lost."""
        with self._dispatcher.lock:
            self._dispatcher.put(self._doubters, b"")

    def add(
        self,
        topic: str,
        receive: Callable[[bytes], None],
        gap: Callable[[], None] | None,
        last: Callable[[str], None] = lambda _: None,
    ) -> Entry:
        """Subscribe; `last` is called with the topic when nobody listens to it any more."""
        box = Mailbox(receive, self.doubt, limit=self._queue, name=topic)
        entry = Entry(self, topic, box, gap, last)
        if gap is not None:
            box.overflow = entry.overflowed
        with self._dispatcher.lock:
            self._topics.setdefault(topic, {})[box] = None
            self._dispatcher.put((), b"")  # In a child: what the fork queued is delivered now.
        return entry

    def on_gap(self, doubt: Callable[[], None]) -> Callable[[], None]:
        """Call `doubt` whenever messages may have been lost; the way to stop that."""
        box = gap_box(doubt, "the bus")
        with self._dispatcher.lock:
            self._doubters[box] = None

        def stop() -> None:
            box.closed = True
            with self._dispatcher.lock:
                self._doubters.pop(box, None)

        return stop

    def remove(self, topic: str, box: Mailbox, gap_box: Mailbox | None) -> bool:
        """Forget a subscriber; whether it was the last of its topic."""
        with self._dispatcher.lock:
            if gap_box is not None:
                self._gaps.pop(gap_box, None)
            boxes = self._topics.get(topic)
            if boxes is None or box not in boxes:
                return False
            del boxes[box]
            box.waiting.clear()
            if boxes:
                return False
            del self._topics[topic]
            return True

    def close(self) -> None:
        """Call nobody any more."""
        self._dispatcher.close()
        with self._dispatcher.lock:
            self._topics.clear()
            self._doubters.clear()

    def after_fork(self) -> list[str]:
        """Begin anew in a child: what was under way is lost. What was subscribed to."""
        self._dispatcher.begin()
        for boxes in (self._doubters, self._gaps, *self._topics.values()):
            for box in boxes:
                box.empty()
        self._dispatcher.put_later(self._doubters, b"")
        return list(self._topics)

    def report_gap(self, box: Mailbox) -> None:
        """Queue the call of a subscriber's `gap`."""
        self._gaps[box] = None
        self._dispatcher.put((box,), b"")


def gap_box(gap: Callable[[], None], name: str) -> Mailbox:
    """The queue of a `gap` callback: one call stands for all."""
    return Mailbox(lambda _: gap(), None, limit=1, name=f"gaps of {name}")


class Entry:
    """One subscription."""

    __slots__ = ("_box", "_exchange", "_gap", "_gap_box", "_last", "_topic")

    def __init__(
        self,
        exchange: Exchange,
        topic: str,
        box: Mailbox,
        gap: Callable[[], None] | None,
        last: Callable[[str], None],
    ) -> None:
        self._exchange, self._topic, self._box = exchange, topic, box
        self._gap, self._last = gap, last
        self._gap_box: Mailbox | None = None

    @property
    def lost(self) -> int:
        """How many messages were dropped because this subscriber was too slow."""
        return self._box.lost

    def overflowed(self) -> None:
        """A message was dropped: call the subscriber's `gap`. Under the lock."""
        if self._gap_box is None:
            assert self._gap is not None
            self._gap_box = gap_box(self._gap, self._topic)
        self._exchange.report_gap(self._gap_box)

    def close(self) -> None:
        """Receive no more."""
        self._box.closed = True
        if self._gap_box is not None:
            self._gap_box.closed = True
        if self._exchange.remove(self._topic, self._box, self._gap_box):
            self._last(self._topic)


class InProcessBus:
    """A `Bus` for the threads of one process.

    Keeps the order of each sender for each subscriber. `queue` is how many messages may wait
    for one subscriber: the oldest are dropped then, and its `gap` is called. A forked process
    has a bus of its own. It also does the last step of a bus that you write: see `doubt`.
    """

    def __init__(self, *, queue: int = QUEUE) -> None:
        self._exchange = Exchange(queue)
        self.listeners = self._exchange.listeners
        """How many subscribed to a topic."""
        reset_after_fork(self)

    def publish(self, topic: str, message: bytes) -> None:
        """Hand a message to the queues of its subscribers."""
        self._exchange.deliver(topic, message)

    def subscribe(
        self, topic: str, receive: Callable[[bytes], None], gap: Callable[[], None] | None = None
    ) -> Subscription:
        """Call `receive` with the messages of a topic, on a thread of the bus."""
        return self._exchange.add(topic, receive, gap)

    def on_gap(self, doubt: Callable[[], None]) -> Callable[[], None]:
        """Call `doubt` when messages may have been lost; the way to stop that."""
        return self._exchange.on_gap(doubt)

    def doubt(self) -> None:
        """Tell everybody who asked with `on_gap` that messages may have been lost.

        For a bus over a network that hands what it receives to this one, after it connected again.
        """
        self._exchange.doubt()

    def close(self) -> None:
        """Call nobody any more."""
        self._exchange.close()

    def after_fork(self) -> None:
        """Begin anew in a child."""
        self._exchange.after_fork()
