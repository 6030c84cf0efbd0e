"""What a client hears of others, and tells them: hints that make it fast, and nothing more."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final
from uuid import uuid4

from ropewalk.coherence._authorities._stored import StoredAuthority
from ropewalk.coherence._buses._bus import (
    Bus,
    Invalidation,
    Receiver,
    Subscription,
    space_topic,
    topic_of,
)
from ropewalk.coherence._buses._fanout import Fanout
from ropewalk.coherence._client import Client
from ropewalk.coherence._content import Content
from ropewalk.coherence._protocol import Version
from ropewalk.errors import Rewound, RopewalkError
from ropewalk.store._checks import expect
from ropewalk.store._watching import Position
from ropewalk.store.forking import freed_after_fork

_log = logging.getLogger("ropewalk.coherence")

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
