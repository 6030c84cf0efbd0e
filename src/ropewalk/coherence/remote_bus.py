"""Buses between processes, over a server or the log of a store, and which one serves a store."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias

from ropewalk.coherence.authority import BRANCH, NAME
from ropewalk.coherence.bus import (
    MAX_MESSAGE_BYTES,
    QUEUE,
    Bus,
    Exchange,
    InProcessBus,
    Invalidation,
    Subscription,
    place_of,
    space_topic,
)
from ropewalk.errors import FormatError, InvalidInput, Rewound, RopewalkError, StoreClosed
from ropewalk.store import MemoryStore, Operation, Store, ref_name
from ropewalk.store.forking import freed_after_fork, reset_after_fork
from ropewalk.store.names import decode_part
from ropewalk.store.retry import PATIENCE, pauses
from ropewalk.store.watch import Patience, watch
from ropewalk.store.wrappers import WrapperStore
from ropewalk.tree import ObjectId, read_commit

if TYPE_CHECKING:
    from ropewalk.store.pubsub import PubSub, Topics

Receive: TypeAlias = Callable[[bytes], None]

_log = logging.getLogger("ropewalk.coherence")

_LOOKS = 1.0  # Seconds after which a thread that follows looks whether it is still wanted.
_REMEMBERED = 4096
_NO_REFS = ref_name("none", "none")  # Asks for a space's number alone.


class RemoteBus:
    """A `Bus` over a server. Connects when it is first used, and again after each failure.

    In a forked process it connects again; what the parent subscribed to is listened to there
    after the first call.
    """

    def __init__(self, pubsub: Topics, queue: int) -> None:
        self._pubsub = pubsub
        self._exchange = Exchange(queue)
        pubsub.attach(self._exchange)
        self._closed = False
        reset_after_fork(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} over {self._pubsub!r}>"

    @property
    def message_limit(self) -> int:
        """The most bytes that one message may have."""
        return min(self._pubsub.message_limit, MAX_MESSAGE_BYTES)

    @property
    def failures(self) -> int:
        """How often a connection failed."""
        return self._pubsub.failures

    @property
    def lost(self) -> int:
        """How many messages were dropped because the server was away."""
        return self._pubsub.lost

    def publish(self, topic: str, message: bytes) -> None:
        """Hand a message over; while the server is away, the oldest are dropped."""
        if not self._closed:
            self._pubsub.publish(topic, message)

    def subscribe(
        self, topic: str, receive: Callable[[bytes], None], gap: Callable[[], None] | None = None
    ) -> Subscription:
        """Call `receive` with the messages of a topic, on a thread of the bus."""
        entry = self._exchange.add(topic, receive, gap, self._pubsub.touch)
        self._pubsub.follow(topic)
        return entry

    def on_gap(self, doubt: Callable[[], None]) -> Callable[[], None]:
        """Call `doubt` when messages may have been lost; the way to stop that."""
        return self._exchange.on_gap(doubt)

    def close(self) -> None:
        """Send what is left if that is quick, and let go of the connections."""
        if not self._closed:
            self._closed = True
            self._pubsub.detach(self._exchange)
            self._pubsub.close()
            self._exchange.close()

    def after_fork(self) -> None:
        """In the child of a fork: reset."""
        self._exchange.after_fork()


class PostgresBus(RemoteBus):
    """A `Bus` over a Postgres database; `dsn` is as for `PostgresStore`.

    Clients that share artifacts share the database and `prefix`. Content of more than about
    6,000 bytes is left out, and fetched by who needs it. `dsn` must lead to the server itself:
    a pooler in transaction mode keeps no LISTEN. Keeps the order of each sender. Needs the
    extra `postgres`.
    """

    def __init__(
        self,
        dsn: str,
        *,
        prefix: str = "ropewalk",
        queue: int = QUEUE,
        patience: float = PATIENCE,
    ) -> None:
        try:
            from ropewalk.store.postgres.listener import PostgresPubSub
        except ModuleNotFoundError as error:
            raise InvalidInput(
                f"a bus over Postgres needs the package {error.name!r}: "
                "pip install 'ropewalk[postgres]'"
            ) from error
        super().__init__(PostgresPubSub.at(dsn, prefix, patience), queue)


class RedisBus(RemoteBus):
    """A `Bus` over a Redis or Valkey server; `url` is as for `RedisStore`.

    All channels begin with `prefix`: clients that share artifacts share it. Keeps the order of
    each sender. Needs the extra `redis`.
    """

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "ropewalk",
        queue: int = QUEUE,
        patience: float = PATIENCE,
    ) -> None:
        try:
            from ropewalk.store.redis.address import read_address
            from ropewalk.store.redis.listener import RedisPubSub
        except ModuleNotFoundError as error:
            raise InvalidInput(
                f"a bus over Redis needs the package {error.name!r}: pip install 'ropewalk[redis]'"
            ) from error
        super().__init__(RedisPubSub(read_address(url), prefix, patience=patience), queue)


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


# The bus of a store.


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
