"""Invalidations: published after writes, received for what this client holds.

They are hints that make a client fast, and nothing more: what is served is decided by versions
and leases.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final, Literal
from uuid import uuid4

from ropewalk.coherence.bus import (
    Bus,
    Invalidation,
    Receiver,
    Subscription,
    place_of,
    space_topic,
    topic_of,
)
from ropewalk.coherence.protocol import Content, Version
from ropewalk.coherence.remote_bus import choose_bus, leave
from ropewalk.coherence.store_authority import StoreAuthority
from ropewalk.coherence.timers import Timer
from ropewalk.errors import Rewound, RopewalkError
from ropewalk.store.forking import reset_after_fork
from ropewalk.store.validation import expect
from ropewalk.store.watch import Position

if TYPE_CHECKING:
    from ropewalk.coherence.read_path import Client

LIMIT: Final = 1024
"""For how many artifacts messages may wait to be published."""

MOST_TOPICS: Final = 10_000
"""A client that holds more artifacts subscribes to those that it asked for last."""

_MOST_PUSHED: Final = 1 << 20
"""Larger content is not sent along: readers fetch it."""

_LINGER_SECONDS: Final = 2.0
"""How long the publishing thread stays although there is nothing to publish."""

_LAST_SECONDS: Final = 1.0
"""How long a client that is closed waits until its last messages are with the bus."""

_ID: Final = bytes(32)

_log = logging.getLogger("ropewalk.coherence")


class Publisher:
    """Publishes what a client wrote, off the writer's path.

    Versions of one artifact that wait become one message. `everybody` publishes to the topic of
    the space as well. `lost` counts what was dropped because the bus is stuck, `failures` what
    the bus refused: neither is the writer's problem.
    """

    def __init__(
        self,
        bus: Bus,
        place: str,
        *,
        everybody: bool = False,
        limit: int = LIMIT,
        timer: Callable[[Publisher, str], Timer] = Timer,
    ) -> None:
        self._bus, self._place = bus, place
        self._everybody, self._limit = everybody, limit
        self._closed = False
        self.published = self.failures = self.lost = 0
        self._timer = timer(self, "ropewalk-fanout")
        self._begin()
        reset_after_fork(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._pending: dict[str, Invalidation] = {}
        self._flushes: list[threading.Event] = []
        self._sending = False

    def after_fork(self) -> None:
        """In a child: what waits is the parent's to publish."""
        self._timer.reset()
        self._begin()

    def publish(self, invalidation: Invalidation) -> None:
        """Publish soon. Never waits and never raises."""
        if self._closed:
            return
        artifact = invalidation.artifact
        with self._lock:
            is_first = not self._pending
            before = self._pending.pop(artifact, None)
            self._pending[artifact] = (
                invalidation if before is None else invalidation.merged(before)
            )
            if len(self._pending) > self._limit:
                del self._pending[next(iter(self._pending))]
                self.lost += 1
        if is_first:
            self._timer.wake()

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until everything is with the bus; False if the time is over."""
        with self._lock:
            if not self._pending and not self._sending:
                return True
            done = threading.Event()
            self._flushes.append(done)
        self._timer.wake()
        return done.wait(timeout)

    def close(self, timeout: float = 1.0) -> None:
        """Publish what is left, as far as that takes no longer than `timeout`, and end."""
        if not self._closed:
            self._closed = True
            self.flush(timeout)
            self._timer.close(0)

    def step(self) -> float | None:
        """Publish what waits."""
        with self._lock:
            pending, self._pending = self._pending, {}
            flushes, self._flushes = self._flushes, []
            self._sending = True
        for one in pending.values():
            self._send(one)
        with self._lock:
            self._sending = False
        for done in flushes:
            done.set()
        return _LINGER_SECONDS if pending or flushes else None

    def _send(self, one: Invalidation) -> None:
        try:
            message = one.encode()
            limit = getattr(self._bus, "message_limit", None)
            if limit is not None and len(message) > limit and one.content is not None:
                message = one._replace(content=None).encode()
            self._bus.publish(topic_of(self._place, one.artifact), message)
            if self._everybody:
                self._bus.publish(space_topic(self._place), message)
            self.published += 1
        except Exception as error:  # noqa: BLE001 - no bus breaks a write
            self.failures += 1
            if self.failures == 1:
                _log.warning("the bus refused a message with %r; more of it is not said", error)


class BusClient:
    """The bus, as one client uses it.

    It subscribes to the artifacts that its agents hold, so that messages go to holders only.
    """

    def __init__(self, client: Client, bus: Bus, place: str, *, owns_bus: bool) -> None:
        self._client, self.bus, self._place = client, bus, place
        self._owns_bus = owns_bus
        self._directory = client.directory
        self._listeners: Callable[[str], int] | None = getattr(bus, "listeners", None)
        self._note_published: Callable[[int], None] | None = getattr(bus, "note_published", None)
        self._publisher = Publisher(
            bus, place, everybody=client.strategy.follows, timer=client.time.timer
        )
        self.subscribed: dict[str, Subscription] = {}
        """By artifact; "" is for all of them."""
        self._parents: list[Subscription] = []
        """In a child: what its parent subscribed to, which is not received here."""
        self._everything = False
        self._lock = threading.Lock()
        self._refused = False
        # Clients of one instance_id must receive each other's messages.
        self._sender = f"{client.instance_id}.{uuid4().hex[:8]}"
        self._stop_gaps = bus.on_gap(client.directory.note_gap)
        expect(callable(self._stop_gaps), "a bus's on_gap gives a function that ends it", bus)
        self.wake: Callable[[], None] | None = None
        """Called when something was received: for a follower of the log."""

    def after_fork(self) -> None:
        """In a child: the parent is another client from now on."""
        self._lock = threading.Lock()
        self._parents += self.subscribed.values()
        self._everything, self.subscribed = "" in self.subscribed, {}
        self._sender = f"{self._client.instance_id}.{uuid4().hex[:8]}"

    # Subscriptions.

    def subscribe_to_space(self) -> None:
        """Receive the invalidations of all artifacts."""
        with self._lock:
            if "" not in self.subscribed:
                receiver = Receiver(self._receive)
                self.subscribed[""] = self._subscription(space_topic(self._place), receiver)

    def subscribe_all(self, artifacts: Iterable[str]) -> None:
        """Receive the invalidations of artifacts, before their versions are asked for."""
        for artifact in artifacts:
            if artifact not in self.subscribed:
                self._subscribe(artifact)

    def _subscribe(self, artifact: str) -> None:
        if self._parents:
            self._subscribe_again()
        oldest = None
        with self._lock:
            if artifact in self.subscribed:
                return
            topic = topic_of(self._place, artifact)
            try:
                found = self._subscription(topic, Receiver(self._receive, artifact))
            except Exception as error:  # noqa: BLE001 - agents need no bus; tried again next time
                if not self._refused:
                    _log.warning("the bus refused a subscription with %r; more is not said", error)
                self._refused = True
                return
            self.subscribed[artifact] = found
            if len(self.subscribed) > MOST_TOPICS:
                # Its copies keep their bounds, which need no message.
                oldest = self.subscribed.pop(next(one for one in self.subscribed if one))
        if oldest is not None:
            oldest.close()

    def _subscribe_again(self) -> None:
        """In a child: subscribe for itself, to what its agents still ask for."""
        with self._lock:
            parents, self._parents = self._parents, []
        if self._everything:
            self.subscribe_to_space()
        for one in parents:
            one.close()

    def _subscription(self, topic: str, receiver: Receiver) -> Subscription:
        found = self.bus.subscribe(topic, receiver, self._directory.note_gap)
        expect(hasattr(found, "close"), "a bus's subscribe gives what has a close()", self.bus)
        return found

    def unsubscribe(self, artifact: str) -> None:
        """Receive nothing of an artifact any more, if nobody here holds it."""
        with self._lock:
            if self._directory.holders(artifact):
                return
            found = self.subscribed.pop(artifact, None)
        if found is not None:
            found.close()

    # Publishing.

    def publish(
        self, artifact: str, version: Version, sequence: int, content: Content | None
    ) -> None:
        """Have others invalidate what a version supersedes; never waits."""
        if self._listeners is not None:
            listening = self._listeners(topic_of(self._place, artifact))
            if self._client.strategy.follows:
                listening += self._listeners(space_topic(self._place))
            if listening <= (artifact in self.subscribed) + ("" in self.subscribed):
                if self._note_published is not None:
                    self._note_published(sequence)
                return  # Nobody but this client listens.
        pushed = None
        if content is not None and self._client.strategy.pushes:
            encoded = content.encoded
            pushed = version.id + encoded if len(encoded) <= _MOST_PUSHED else None
        number = version.number
        message = Invalidation(
            artifact, number, number - 1, sequence, version.agent, self._sender, pushed
        )
        self._publisher.publish(message)

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until everything that was published is with the bus; whether it was."""
        return self._publisher.flush(timeout)

    def close(self) -> None:
        """Publish what waits, receive no more, and close the bus if it is this client's own."""
        with ExitStack() as last_first:
            if self._owns_bus:
                last_first.callback(self.bus.close)
            last_first.callback(self._publisher.close)
            last_first.callback(self._unsubscribe_all)
            self.flush(_LAST_SECONDS)

    def _unsubscribe_all(self) -> None:
        self._stop_gaps()
        with self._lock:
            subscriptions = [*self.subscribed.values(), *self._parents]
            self.subscribed.clear()
            self._parents.clear()
        for one in subscriptions:
            one.close()

    def abandon(self) -> None:
        """The client is gone, and nobody closed it: let go of its bus soon. Takes no lock."""
        if self._owns_bus:
            leave(self.bus)

    # Receiving.

    def _receive(self, message: Invalidation) -> None:
        if message.instance != self._sender:
            if message.content is not None and len(message.content) > len(_ID):
                self._cache(message.content)
            known = self._directory.invalidated(message.artifact, message.version, message.since)
            self._client.recorder.transitions(known.transitions)
        if self.wake is not None:
            self.wake()
        if message.content is None and self._client.strategy.pushes:
            self._prefetch(message.artifact, message.version)

    def _cache(self, pushed: bytes) -> None:
        """Cache content that came along; a reader compares it with the authority's version."""
        id, encoded = pushed[: len(_ID)], pushed[len(_ID) :]
        if self._client.contents.get(id) is not None:
            return
        content = Content(encoded, self._client.codec, unverified=True)
        try:
            content.check()
        except (RopewalkError, ValueError):
            return
        self._client.contents.put(id, content)

    def _prefetch(self, artifact: str, version: int) -> None:
        """Get content that did not come along, before somebody here asks for it."""
        authority, contents = self._client.authority, self._client.contents
        wanted = self._client.strategy.follows or self._directory.holders(artifact)
        if not wanted or self._directory.newest(artifact) > version:
            return
        with suppress(RopewalkError):  # Then a reader fetches it, or gets the error.
            newest = authority.newest(artifact)
            if newest is None or newest.deleted or contents.get(newest.id) is not None:
                return
            found = authority.content(artifact, newest)
            # Without the decoded value: nobody may ever ask for it.
            contents.put(newest.id, Content(found.encoded, self._client.codec))


class LogFollower:
    """Follows the operation log of a space in the background.

    `known` has the newest versions; it is complete up to the time `followed`.
    """

    def __init__(self, client: Client, authority: StoreAuthority, seconds: float) -> None:
        self._authority, self._directory = authority, client.directory
        self._clock, self._recorder, self._seconds = client.clock, client.recorder, seconds
        self._failed = False
        self.known: dict[str, Version] = {}
        self._position: Position | None = None
        self.followed = float("-inf")
        self.timer: Timer = client.time.timer(self, "ropewalk-follower")
        self.start()

    def after_fork(self) -> None:
        """In a child: the thread is gone."""
        self.followed = float("-inf")
        self.timer.reset()

    def start(self) -> None:
        """Follow from now on, if nobody does yet."""
        self.timer.start()

    def close(self) -> None:
        """Follow no more."""
        self.timer.close(5)

    def step(self) -> float:
        """Read what came; seconds until the next time."""
        try:
            self.read_on()
            self._failed = False
        except Exception as error:  # noqa: BLE001 - reads confirm as long as this fails
            if not self._failed:
                _log.warning("the log of artifacts cannot be followed now: %s", error)
            self._failed = True
        return self._seconds

    def read_on(self) -> None:
        """Read the log up to its end; raises what the authority raises."""
        if self._position is None:
            # What is found now is at least as new as this operation.
            first = Position(self._authority.sequence())
            self.known = dict(self._authority.names())
            self._position = first
        while not self.timer.closed:
            before = self._clock()
            try:
                found, position = self._authority.changes(self._position)
            except Rewound:
                # The server has lost its last writes: what was read of them counts no more.
                self._position, self.followed = None, float("-inf")
                self._directory.note_gap()
                self.timer.wake()
                raise
            for artifact, version in found:
                number = version.number
                known = self._directory.invalidated(artifact, number, number - 1)
                self._recorder.transitions(known.transitions)
                if version.deleted:
                    self.known.pop(artifact, None)
                    self._directory.deleted(artifact, number)
                else:
                    self.known[artifact] = version
            if position == self._position:
                self.followed = before
                return
            self._position = position


def connect(client: Client, bus: Bus | Literal[False] | None, tick_seconds: float) -> None:
    """Give a client its bus, and a follower if its strategy needs one.

    It gets neither where the authority is in memory.
    """
    expect(
        bus is None or bus is False or isinstance(bus, Bus),
        "bus is None, False, or has publish, subscribe, on_gap and close",
        bus,
    )
    authority = client.authority
    if not isinstance(authority, StoreAuthority):
        return
    store, space = authority.store, authority.space
    if bus is not False:
        used = choose_bus(store, space) if bus is None else bus
        client.invalidations = BusClient(client, used, place_of(store, space), owns_bus=bus is None)
    if client.strategy.follows:
        client.follower = LogFollower(client, authority, tick_seconds / 4)
        if client.invalidations is not None:
            client.invalidations.wake = client.follower.timer.wake
            client.invalidations.subscribe_to_space()


def abandon(client: Client) -> None:
    """A client is gone, and nobody closed it: end its background work soon. Takes no lock."""
    if client.follower is not None:
        client.follower.timer.abandon()
    if client.invalidations is not None:
        client.invalidations.abandon()
