"""Invalidations: published after writes, received for what this client holds."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from contextlib import ExitStack, suppress
from queue import Empty, SimpleQueue
from typing import Final, Literal
from uuid import uuid4

from ropewalk.coherence.artifact import Content
from ropewalk.coherence.bus import (
    Bus,
    Invalidation,
    Receiver,
    Subscription,
    choose_bus,
    leave,
    place_of,
    space_topic,
    topic_of,
)
from ropewalk.coherence.protocol import Version
from ropewalk.coherence.read_path import Client
from ropewalk.coherence.store_authority import StoredAuthority
from ropewalk.coherence.timers import tell_after_fork
from ropewalk.errors import Rewound, RopewalkError
from ropewalk.store._checks import expect
from ropewalk.store._watching import Position
from ropewalk.store.forking import freed_after_fork

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


_MOST_PUSHED: Final = 1 << 20
"""Larger content is not sent along: whoever wants it fetches it."""

_MOST_TOPICS: Final = 10_000
"""A client that holds more artifacts is told of those that it asked for last."""


class Hearing:
    """The bus, as one client uses it.

    It subscribes to the artifacts that its agents hold, so that only holders are told.
    """

    def __init__(self, client: Client, bus: Bus, place: str) -> None:
        self._client, self._bus, self._place = client, bus, place
        self._directory = client.directory
        self._fanout = Fanout(bus, place, everybody=client.strategy.follows)
        self._subscriptions: dict[str, Subscription] = {}
        self._parents: list[Subscription] = []
        """In a child: what its parent subscribed to, which is not heard here."""
        self._lock = threading.Lock()
        self._is_deaf = False
        # Clients of one instance_id must hear each other.
        self._sender = f"{client.instance_id}.{uuid4().hex[:8]}"
        self._stop_doubting = bus.on_gap(client.directory.doubt)
        expect(callable(self._stop_doubting), "a bus's on_gap gives a function that ends it", bus)
        self.wake: Callable[[], None] | None = None
        """Called when something came: for a follower of the log."""

    def after_fork(self) -> None:
        """In a child: the parent is another client from now on."""
        self._lock = threading.Lock()
        self._parents += self._subscriptions.values()
        self._everything, self._subscriptions = "" in self._subscriptions, {}
        self._sender = f"{self._client.instance_id}.{uuid4().hex[:8]}"

    def listen_to_all(self) -> None:
        """Hear of everything in the space."""
        with self._lock:
            if "" not in self._subscriptions:
                topic = space_topic(self._place)
                self._subscriptions[""] = self._subscribed(topic, Receiver(self._receive))

    def listen(self, artifact: str) -> None:
        """Hear of an artifact from now on. Called before its version is asked for."""
        if artifact in self._subscriptions:
            return
        if self._parents:
            self._listen_anew()
        with self._lock:
            if artifact not in self._subscriptions:
                self._subscribe(artifact)
            gone = self._oldest() if len(self._subscriptions) > _MOST_TOPICS else None
        if gone is not None:
            gone.close()

    def _listen_anew(self) -> None:
        """In a child: subscribe for itself, to what its agents still ask for."""
        with self._lock:
            parents, self._parents = self._parents, []
        if self._everything:
            self.listen_to_all()
        for one in parents:
            one.close()

    def _subscribe(self, artifact: str) -> None:
        topic = topic_of(self._place, artifact)
        try:
            found = self._subscribed(topic, Receiver(self._receive, artifact))
        except Exception as error:  # noqa: BLE001 - what agents do needs no bus; tried again then
            if not self._is_deaf:
                _log.warning("the bus refused a subscription with %r; more is not said", error)
            self._is_deaf = True
        else:
            self._subscriptions[artifact] = found

    def _subscribed(self, topic: str, receiver: Receiver) -> Subscription:
        found = self._bus.subscribe(topic, receiver, self._directory.doubt)
        expect(hasattr(found, "close"), "a bus's subscribe gives what has a close()", self._bus)
        return found

    def _oldest(self) -> Subscription:
        """Take the oldest out. Its copies keep their bounds, which need no message."""
        artifact = next(one for one in self._subscriptions if one)
        return self._subscriptions.pop(artifact)

    def ignore(self, artifact: str) -> None:
        """Hear of an artifact no more, if nobody here holds it."""
        with self._lock:
            if self._directory.holders(artifact):
                return
            found = self._subscriptions.pop(artifact, None)
        if found is not None:
            found.close()

    def tell(self, artifact: str, version: Version, sequence: int, content: Content | None) -> None:
        """Have others told of a version; never waits."""
        pushed = None
        if self._client.strategy.pushes and content is not None and len(content) <= _MOST_PUSHED:
            pushed = version.id + content.encoded
        number = version.number
        told = Invalidation(
            artifact, number, number - 1, sequence, version.agent, self._sender, pushed
        )
        own = (artifact in self._subscriptions) + ("" in self._subscriptions)
        self._fanout.tell(told, own)

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until everything that was told is handed to the bus; whether it was."""
        return self._fanout.flush(timeout)

    def close(self) -> None:
        """Tell and hear no more."""
        self._stop_doubting()
        with self._lock:
            subscriptions = [*self._subscriptions.values(), *self._parents]
            self._subscriptions.clear()
            self._parents.clear()
        for one in subscriptions:
            one.close()
        self._fanout.close()

    def _receive(self, message: Invalidation) -> None:
        if message.instance != self._sender:
            if message.content is not None and len(message.content) > len(_ID):
                self._keep(message.content)
            heard = self._directory.heard(message.artifact, message.version, message.since)
            self._client.telling.note(heard.transitions)
        if self.wake is not None:
            self.wake()
        if message.content is None and self._client.strategy.pushes:
            self._fetch(message.artifact, message.version)

    def _keep(self, pushed: bytes) -> None:
        """Content that came along; whoever uses it compares it with the authority's version."""
        id, encoded = pushed[: len(_ID)], pushed[len(_ID) :]
        if self._client.contents.get(id) is not None:
            return
        content = Content(encoded, self._client.codec, hearsay=True)
        try:
            content.check()
        except (RopewalkError, ValueError):
            return
        self._client.contents.put(id, content)

    def _fetch(self, artifact: str, version: int) -> None:
        """Get content that did not come along, before somebody here asks for it."""
        authority, contents = self._client.authority, self._client.contents
        wanted = self._client.strategy.follows or self._directory.holders(artifact)
        if not wanted or self._directory.newest(artifact) > version:
            return
        with suppress(RopewalkError):  # Then whoever reads it fetches it, or hears why not.
            newest = authority.newest(artifact)
            if newest is None or newest.deleted or contents.get(newest.id) is not None:
                return
            contents.put(newest.id, authority.content(artifact, newest))


_ID: Final = bytes(32)


class Follower:
    """Reads the operation log of a space all the time, so that nobody has to ask.

    `followed` is the moment up to which everything is known; `known` has the newest versions.
    """

    def __init__(self, client: Client, authority: StoredAuthority, seconds: float) -> None:
        self._authority, self._directory = authority, client.directory
        self._clock, self._telling, self._seconds = client.clock, client.telling, seconds
        self._closed = False
        self.known: dict[str, Version] = {}
        self._position: Position | None = None
        self._lock = freed_after_fork(threading.Lock())
        self.after_fork()
        self.begin()

    def after_fork(self) -> None:
        """In a child: the thread is gone."""
        self._news = threading.Event()
        self.followed = float("-inf")
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Follow from now on, if nobody does yet."""
        if self._thread is not None or self._closed:
            return
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="ropewalk-follower", daemon=True
                )
                self._thread.start()

    def wake(self) -> None:
        """Look now."""
        self._news.set()

    def abandon(self) -> None:
        """Follow no more, soon: the client is gone, and nobody closed it. Takes no lock."""
        self._closed = True

    def close(self) -> None:
        """Follow no more."""
        self._closed = True
        self._news.set()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join(5)

    def _run(self) -> None:
        failed = False
        while not self._closed:
            self._news.clear()
            try:
                self._look()
                failed = False
            except Exception as error:  # noqa: BLE001 - reads confirm as long as this fails
                if not failed:
                    _log.warning("the log of artifacts cannot be followed now: %s", error)
                failed = True
            self._news.wait(self._seconds)

    def _look(self) -> None:
        if self._position is None:
            # What is found now is at least as new as this operation.
            first = Position(self._authority.sequence())
            self.known = dict(self._authority.names())
            self._position = first
        while not self._closed:
            before = self._clock()
            try:
                found, position = self._authority.changes(self._position)
            except Rewound:
                # A server that may lose its last moments has: nothing that is known counts.
                self._position, self.followed = None, float("-inf")
                self._directory.doubt()
                self.wake()
                raise
            for artifact, version in found:
                heard = self._directory.heard(artifact, version.number, version.number - 1)
                self._telling.note(heard.transitions)
                if version.deleted:
                    self.known.pop(artifact, None)
                    self._directory.deleted(artifact, version.number)
                else:
                    self.known[artifact] = version
            if position == self._position:
                self.followed = before
                return
            self._position = position


_LAST_SECONDS: Final = 1.0
"""How long a client that is closed waits until what it has to tell is out."""


class News:
    """What one client hears with. Both are None where the authority is in memory."""

    hearing: Hearing | None = None
    follower: Follower | None = None

    def __init__(
        self, client: Client, bus: Bus | Literal[False] | None, tick_seconds: float
    ) -> None:
        expect(
            bus is None or bus is False or isinstance(bus, Bus),
            "bus is None, False, or has publish, subscribe, on_gap and close",
            bus,
        )
        self._bus: Bus | None = None
        self._owns_bus = bus is None
        authority = client.authority
        if isinstance(authority, StoredAuthority) and bus is not False:
            store, space = authority.store, authority.space
            self._bus = choose_bus(store, space) if bus is None else bus
            self.hearing = Hearing(client, self._bus, place_of(store, space))
            if self._owns_bus:
                self._left = weakref.finalize(self, leave, self._bus)
                self._left.atexit = False
        if client.strategy.follows and isinstance(authority, StoredAuthority):
            self.follower = Follower(client, authority, tick_seconds / 4)
            weakref.finalize(self, self.follower.abandon).atexit = False
            if self.hearing is not None:
                self.hearing.wake = self.follower.wake
                self.hearing.listen_to_all()

    def after_fork(self) -> None:
        """In a child: it is another client from now on."""
        for heard in (self.hearing, self.follower):
            if heard is not None:
                heard.after_fork()

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until what is to be told is with the bus; whether it was in time."""
        return self.hearing is None or self.hearing.flush(timeout)

    def close(self) -> None:
        """Tell what waits, and hear no more."""
        with ExitStack() as last_first:
            if self._bus is not None and self._owns_bus:
                last_first.callback(self._bus.close)
                self._left.detach()
            if self.hearing is not None:
                last_first.callback(self.hearing.close)
                last_first.callback(self.hearing.flush, _LAST_SECONDS)
            if self.follower is not None:
                last_first.callback(self.follower.close)
