"""What a bus is, what it carries, and which one serves a store.

A bus carries hints. It may lose, delay, repeat and reorder them, and nothing becomes wrong:
what is served is decided by versions and leases. A bus that does its work makes it fast.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import ormsgpack

from ropewalk.coherence.authority import BRANCH, NAME, branch_of
from ropewalk.coherence.local_bus import QUEUE, Exchange, InProcessBus
from ropewalk.errors import FormatError, Rewound, RopewalkError, StoreClosed
from ropewalk.store import MemoryStore, Operation, Store, ref_name
from ropewalk.store.forking import freed_after_fork, reset_after_fork
from ropewalk.store.names import decode_part, encode_part
from ropewalk.store.retry import pauses
from ropewalk.store.watch import Patience, watch
from ropewalk.store.wrappers import WrapperStore
from ropewalk.tree import ObjectId, read_commit

if TYPE_CHECKING:
    from ropewalk.store.pubsub import PubSub

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


Receive = Callable[[bytes], None]


def choose_bus(store: Store | None, space: str) -> Bus:
    """The bus that serves one space of a store, for one client, who closes it.

    In process for memory, LISTEN and NOTIFY for Postgres, publish and subscribe for Redis;
    for all others one that follows the operation log. Clients of one process share it.
    """
    if store is None:
        return InProcessBus()
    behind = store
    while isinstance(behind, WrapperStore):
        behind = behind.inner
    identity = behind.header.store_id
    if isinstance(behind, MemoryStore):
        return _sharing.share(("memory", identity), InProcessBus)
    pubsub = getattr(behind, "pubsub", None)
    if pubsub is not None and pubsub.is_direct():
        return _sharing.share(("server", identity), lambda: _server_bus(pubsub))
    return _sharing.share(("log", id(store), space), lambda: LogBus(store, space))


def _server_bus(pubsub: PubSub) -> Bus:
    """A bus over the connections of a store, which outlive that if others use it."""
    from ropewalk.coherence.remote_bus import RemoteBus

    pubsub.retain()
    return RemoteBus(pubsub, QUEUE)


def leave(bus: Bus) -> None:
    """A client is gone that nobody closed: let go of its bus soon. Takes no lock."""
    if isinstance(bus, Handle):
        _sharing.left.put(bus)


# Sharing.


@dataclass
class _Shared:
    bus: Bus
    users: int = 0


class _Sharing:
    """The buses of this process, and how many use each."""

    def __init__(self) -> None:
        self._shared: dict[Hashable, _Shared] = {}
        self.left: SimpleQueue[Handle] = SimpleQueue()
        """The parts of clients that are gone, and that nobody closed."""
        self.after_fork()
        reset_after_fork(self)

    def share(self, key: Hashable, make: Callable[[], Bus]) -> Bus:
        """A part in a bus, which is made for the first who asks."""
        self._let_go()
        with self._lock:
            found = self._shared.get(key)
            if found is None:
                found = self._shared[key] = _Shared(make())
            found.users += 1
        return Handle(found.bus, lambda: self._release(key))

    def after_fork(self) -> None:
        """Begin anew in a child."""
        self._lock = threading.Lock()

    def _let_go(self) -> None:
        """Close the parts of clients that are gone: not when that is found, amid anything."""
        with suppress(Empty):
            while True:
                self.left.get_nowait().close()

    def _release(self, key: Hashable) -> None:
        with self._lock:
            found = self._shared[key]
            found.users -= 1
            if found.users:
                return
            del self._shared[key]
        found.bus.close()


_sharing = _Sharing()


class Handle:
    """One client's part in a bus that several share; closing it leaves the others' alone."""

    def __init__(self, bus: Bus, release: Callable[[], None]) -> None:
        self.bus = bus
        self._release: Callable[[], None] | None = release
        self._lock = freed_after_fork(threading.Lock())
        self._entries: dict[_Entry, None] = {}
        self._doubts: dict[Callable[[], None], Callable[[], None]] = {}

    def __repr__(self) -> str:
        return f"<a client's part in {self.bus!r}>"

    def __getattr__(self, name: str) -> Any:
        # What a bus may have, but need not.
        if name in ("listeners", "message_limit", "note_published"):
            return getattr(self.bus, name)
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

    def publish(self, topic: str, message: bytes) -> None:
        """Hand a message over."""
        if self._release is not None:
            self.bus.publish(topic, message)

    def subscribe(
        self, topic: str, receive: Receive, gap: Callable[[], None] | None = None
    ) -> Subscription:
        """Call `receive` with the messages of a topic, on a thread of the bus."""
        entry = _Entry(self)
        with self._lock:
            if self._release is None:
                return entry
            self._entries[entry] = None
        # What this client missed is no doubt for the others.
        entry.inner = self.bus.subscribe(topic, receive, gap or self._doubt)
        if entry.closed:
            entry.inner.close()
        return entry

    def on_gap(self, doubt: Callable[[], None]) -> Callable[[], None]:
        """Call `doubt` when messages may have been lost; the way to stop that."""
        own = _Doubt(doubt)
        stop_inner = self.bus.on_gap(own)
        with self._lock:
            self._doubts[own] = stop_inner

        def stop() -> None:
            with self._lock:
                self._doubts.pop(own, None)
            stop_inner()

        return stop

    def close(self) -> None:
        """Let go of what this client subscribed to, and of the bus if it was the last."""
        with self._lock:
            release, self._release = self._release, None
            entries, self._entries = list(self._entries), {}
            stops, self._doubts = list(self._doubts.values()), {}
        for entry in entries:
            entry.close()
        for stop in stops:
            stop()
        if release is not None:
            release()

    def forget(self, entry: _Entry) -> None:
        """Know a subscription no more."""
        with self._lock:
            self._entries.pop(entry, None)

    def _doubt(self) -> None:
        with self._lock:
            doubts = list(self._doubts)
        for doubt in doubts:
            doubt()


class _Doubt:
    """Tells two equal functions apart."""

    def __init__(self, doubt: Callable[[], None]) -> None:
        self._doubt = doubt

    def __call__(self) -> None:
        self._doubt()


class _Entry:
    """A subscription at a handle."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self.inner: Subscription | None = None
        self.closed = False

    def close(self) -> None:
        """Receive no more."""
        self.closed = True
        self._handle.forget(self)
        if self.inner is not None:
            self.inner.close()


_log = logging.getLogger("ropewalk.coherence")

_LOOKS = 1.0  # Seconds after which a thread that follows looks whether it is still wanted.
_REMEMBERED = 4096
_NO_REFS = ref_name("none", "none")  # Asks for a space's number alone.


class LogBus:
    """A `Bus` that publishes what the operation log of one space says, also of other processes.

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
        reset_after_fork(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._published: dict[int, None] = {}
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
        self.note_published(sequence)
        self._exchange.deliver(topic, message)

    def note_published(self, sequence: int) -> None:
        """The subscribers here know of an operation: it need not be published from the log."""
        with self._lock:
            self._published[sequence] = None
            while len(self._published) > _REMEMBERED:
                del self._published[next(iter(self._published))]

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
                    self._publish(operation)
            except StoreClosed:
                return
            except Rewound:
                look = None  # The numbers that were published come again, for something else.
                with self._lock:
                    self._published.clear()
            except Exception as error:  # noqa: BLE001 - whatever it is, the log is read on
                if not threading.main_thread().is_alive():
                    return  # The program ends, and no thread can be started any more.
                self.failures += 1
                if self.failures == 1:
                    _log.warning("%r cannot be followed: %s; more of it is not said", self, error)
                self._exchange.doubt()
                self._over.wait(next(pause))

    def _publish(self, operation: Operation) -> None:
        with self._lock:
            if self._published.pop(operation.sequence, self) is None:
                return  # It was published here.
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
        message = Invalidation(
            artifact, commit.generation, before, operation.sequence, commit.agent, ""
        )
        return message.encode()
