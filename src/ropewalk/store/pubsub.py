"""Publish and subscribe over a server: one connection that listens, and one that sends.

A store's `watch` and the buses of `coherence` share what stands here, so that a process has one
listener for a server. One thread sends what was handed over, the other listens. Both connect
when they are first needed, and again by themselves after a failure. Nobody but these threads
ever waits for the server, except a new subscriber, for a moment.
"""

from __future__ import annotations

import logging
import select
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple, Protocol

from ropewalk.store.forking import freed_after_fork, reset_after_fork
from ropewalk.store.retry import PATIENCE, pauses

OUTBOX: Final = 4096
"""Messages that wait while the server is away: then the oldest are dropped."""

CLOSES: Final = 1.0
"""Seconds that closing waits for a server."""

_SUBSCRIBES = 2.0  # Seconds that a new subscriber waits for the server at most.
_LINGERS = 1.0  # Seconds that a connection stays although nobody subscribes any more.
_BATCH = 256
_TRIES = 3

_log = logging.getLogger("ropewalk.store")


class Subscriber(Protocol):
    """Who takes the messages of some topics."""

    def topics(self) -> Iterable[str]:
        """What is wanted now."""

    def listeners(self, topic: str) -> int:
        """How many want a topic."""

    def deliver(self, topic: str, message: bytes) -> None:
        """Take a message, quickly."""

    def doubt(self) -> None:
        """Messages may have been lost."""


class Changes(NamedTuple):
    """What to ask the server for, and what no more."""

    follow: list[str]
    leave: list[str]


class Received(NamedTuple):
    """What came from a server: a message of a topic, or that the topic is followed from now on."""

    topic: str
    message: bytes | None


class Sender(ABC):
    """A connection that messages are sent over."""

    @abstractmethod
    def send(self, messages: Sequence[tuple[str, bytes]]) -> None:
        """Send messages, by topic."""

    @abstractmethod
    def close(self) -> None:
        """Let go of it."""


class Listener(ABC):
    """A connection that messages come over."""

    looks: float | None = None
    """Seconds between two calls of `receive` where the server says nothing unasked."""

    @abstractmethod
    def fileno(self) -> int:
        """What to wait at."""

    @abstractmethod
    def follow(self, topics: Sequence[str]) -> None:
        """Ask for the messages of topics; `receive` says when that is in force."""

    @abstractmethod
    def leave(self, topics: Sequence[str]) -> None:
        """Ask for the messages of topics no more."""

    @abstractmethod
    def receive(self) -> Iterator[Received]:
        """What has come, without waiting for more."""

    @abstractmethod
    def ask(self) -> None:
        """Have the server say something; raises if it did not after the time before."""

    @abstractmethod
    def close(self) -> None:
        """Let go of it."""


class Topics(ABC):
    """What the subscribers of a connection want, and whether the server knows of it.

    `failures` counts how often a connection failed, `lost` how many messages were dropped
    because the server was away.
    """

    def __init__(self) -> None:
        self._subscribers: tuple[Subscriber, ...] = ()
        self._users = 1
        self._over = freed_after_fork(threading.Event())
        self.failures = 0
        self.lost = 0
        self._begin()
        reset_after_fork(self)

    def _begin(self) -> None:
        """Begin with no thread and no connection, also in a child."""
        self._lock = threading.Lock()
        self._settled = threading.Condition(self._lock)
        self._touched: deque[str] = deque()
        self._following: set[str] = set()
        self._late: set[str] = set()
        self._away = False

    @property
    @abstractmethod
    def message_limit(self) -> int:
        """The most bytes that one message may have."""

    @abstractmethod
    def _rouse(self) -> None:
        """Have the thread that listens look at what changed, and start it if there is none."""

    @abstractmethod
    def publish(self, topic: str, message: bytes) -> None:
        """Hand a message over; while the server is away, the oldest are dropped."""

    @abstractmethod
    def _close(self) -> None:
        """Send what is left if that is quick, and let go of the connections."""

    def retain(self) -> None:
        """One more uses it, and will close it."""
        with self._lock:
            self._users += 1

    def close(self) -> None:
        """Let go of it; the connections end with the last who uses it."""
        with self._settled:
            self._users -= 1
            if self._users or self._over.is_set():
                return
            self._over.set()
            self._settled.notify_all()
        self._close()

    def attach(self, subscriber: Subscriber) -> None:
        """Deliver what a subscriber wants from now on."""
        with self._lock:
            self._subscribers = (*self._subscribers, subscriber)

    def detach(self, subscriber: Subscriber) -> None:
        """Deliver nothing to a subscriber any more."""
        with self._lock:
            self._subscribers = tuple([one for one in self._subscribers if one is not subscriber])
        for topic in subscriber.topics():
            self.touch(topic)

    def follow(self, topic: str) -> None:
        """Wait until a topic that is wanted is in force, for a moment at most."""
        with self._lock:
            if topic in self._following:
                return
        self.touch(topic)
        with self._settled:
            if not self._late:  # While others wait without success, a new one need not wait.
                self._settled.wait_for(lambda: self._is_settled(topic), _SUBSCRIBES)
            if not self._is_settled(topic):
                self._late.add(topic)

    def touch(self, topic: str) -> None:
        """Have somebody look whether a topic is to be followed or left."""
        self._touched.append(topic)
        if not self._over.is_set():
            self._rouse()

    def touch_all(self) -> None:
        """The same for all that is wanted."""
        for topic in self._wanted():
            self.touch(topic)

    def after_fork(self) -> None:
        """In the child of a fork: reset."""
        self._begin()

    def _is_settled(self, topic: str) -> bool:
        return topic in self._following or self._away or self._over.is_set()

    def _wanted(self) -> list[str]:
        return [topic for one in self._subscribers for topic in one.topics()]

    # For the thread that listens.

    def _deliver(self, topic: str, message: bytes) -> None:
        for one in self._subscribers:
            one.deliver(topic, message)

    def _doubt(self) -> None:
        for one in self._subscribers:
            one.doubt()

    def _changes(self) -> Changes:
        touched: set[str] = set()
        with suppress(IndexError):
            while True:
                touched.add(self._touched.popleft())
        with self._lock:  # A subscriber looks, after it was entered, whether its topic is followed.
            wanted = {
                topic for topic in touched if any(one.listeners(topic) for one in self._subscribers)
            }
            leave = (touched - wanted) & self._following
            self._following -= leave
            follow = wanted - self._following
        return Changes(sorted(follow), sorted(leave))

    def _confirm(self, topic: str) -> None:
        """A topic is followed from now on."""
        with self._settled:
            self._following.add(topic)
            late = topic in self._late
            self._late.discard(topic)
            self._settled.notify_all()
        if late:
            self._doubt()

    def _follows_all(self) -> bool:
        return self._following.issuperset(self._wanted())

    def _connected(self) -> None:
        """There is a connection: everything is to be followed."""
        self._touched.extend(self._wanted())
        with self._settled:
            self._away = False

    def _disconnected(self) -> None:
        """There is none: nobody waits for it, and from now on messages are lost."""
        with self._settled:
            known, self._away = self._away, True
            self._following.clear()
            self._late.clear()
            self._settled.notify_all()
        if not known:
            self._doubt()

    def _failed(self, error: BaseException) -> None:
        self.failures += 1
        if self.failures == 1:
            _log.warning("%r lost its server: %s; more of it is not said", self, error)


class PubSub(Topics):
    """Publish and subscribe over a server with two connections, each with a thread of its own.

    In a forked process it connects anew; what the parent subscribed to is listened to there
    after the first call.
    """

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._left_behind: list[object] = []
        super().__init__()

    def _begin(self) -> None:
        super()._begin()
        self._outbox: SimpleQueue[tuple[str, bytes] | None] = SimpleQueue()
        self._sending: threading.Thread | None = None
        self._listening: threading.Thread | None = None
        self._sender: Sender | None = None
        self._listener: Listener | None = None
        self._bell: socket.socket | None = None
        self._ring: socket.socket | None = None

    def is_direct(self) -> bool:
        """Whether there is a way to the server itself."""
        return True

    @abstractmethod
    def _open_sender(self) -> Sender:
        """Connect, to send."""

    @abstractmethod
    def _open_listener(self) -> Listener:
        """Connect, to listen."""

    def publish(self, topic: str, message: bytes) -> None:
        """Hand a message over; while the server is away, the oldest are dropped."""
        if self._over.is_set():
            return
        if len(message) > self.message_limit:
            self.lost += 1
            return
        self._outbox.put((topic, message))
        if self._sending is None:
            self._start_sending()
        if self._outbox.qsize() > OUTBOX:
            with suppress(Empty):
                self._outbox.get_nowait()
                self.lost += 1

    def _close(self) -> None:
        self._outbox.put(None)
        self._ring_bell()
        until = time.monotonic() + CLOSES
        for thread in (self._sending, self._listening):
            if thread is not None and thread is not threading.current_thread():
                thread.join(max(until - time.monotonic(), 0))

    def after_fork(self) -> None:
        """In the child of a fork: drop the parent's connections without closing them."""
        self._left_behind += [self._sender, self._listener, self._bell, self._ring]
        super().after_fork()

    # Sending.

    def _start_sending(self) -> None:
        with self._lock:
            if self._sending is None:
                self._sending = _start(self._send)
        if self._listening is None:  # In a forked process, the parent's subscriptions go on.
            self.touch_all()

    def _send(self) -> None:
        batch: list[tuple[str, bytes]] = []
        pause, tries = pauses(), 0
        while True:
            try:
                if self._sender is None:
                    self._sender = self._open_sender()
                while batch or self._fill(batch):
                    tries += 1
                    self._sender.send(batch)
                    batch.clear()
                    pause, tries = pauses(), 0
                break
            except Exception as error:  # noqa: BLE001 - whatever a driver raises, it is tried again
                self._failed(error)
                self._drop_sender()
                if tries >= _TRIES:  # It may be these messages that the server refuses.
                    self.lost += len(batch)
                    batch.clear()
                    tries = 0
                if self._over.wait(next(pause)):
                    break
        self._drop_sender()

    def _fill(self, batch: list[tuple[str, bytes]]) -> bool:
        """Wait for something to send; False at the end."""
        one = self._outbox.get()
        while one is not None:
            batch.append(one)
            if len(batch) >= _BATCH:
                return True
            try:
                one = self._outbox.get_nowait()
            except Empty:
                return True
        if batch:
            self._outbox.put(None)  # The end is seen the next time.
        return bool(batch)

    def _drop_sender(self) -> None:
        sender, self._sender = self._sender, None
        if sender is not None:
            with suppress(Exception):
                sender.close()

    # Listening.

    def _rouse(self) -> None:
        with self._lock:
            if self._listening is None:
                if not self._wanted():
                    return
                self._bell, self._ring = socket.socketpair()
                self._bell.setblocking(False)
                self._ring.setblocking(False)
                self._listening = _start(self._listen)
        self._ring_bell()

    def _ring_bell(self) -> None:
        ring = self._ring
        if ring is not None:
            with suppress(OSError):
                ring.send(b".")

    def _listen(self) -> None:
        pause, first = pauses(), True
        while not self._over.is_set():
            try:
                self._listener = self._open_listener()
                self._connected()
                pause = pauses()
                if self._pass_on(self._listener, doubted=first):
                    break
            except Exception as error:  # noqa: BLE001 - whatever a driver raises, it is tried again
                first = False
                self._failed(error)
                self._disconnected()
                self._close_listener()
                self._over.wait(next(pause))
        self._close_listener()
        with self._lock:
            self._following.clear()
            self._listening = None
            for one in (self._bell, self._ring):
                if one is not None:
                    one.close()
        if self._wanted() and not self._over.is_set():
            self._rouse()  # Somebody subscribed while it ended.

    def _pass_on(self, listener: Listener, *, doubted: bool) -> bool:
        """Deliver what is received until the connection fails, or nobody wants anything."""
        idle_since: float | None = None
        while not self._over.is_set():
            follow, leave = self._changes()
            if leave:
                listener.leave(leave)
            if follow:
                listener.follow(follow)
            for topic, message in listener.receive():
                if message is None:
                    self._confirm(topic)
                else:
                    self._deliver(topic, message)
            if not doubted and self._follows_all():
                # Not before all is followed again: from now on everything is received.
                self._doubt()
                doubted = True
            if self._following:
                idle_since = None
            elif idle_since is None:
                idle_since = time.monotonic()
            elif time.monotonic() - idle_since >= _LINGERS:
                return True
            if not self._wait(listener, idle_since is not None):
                listener.ask()
        return True

    def _wait(self, listener: Listener, idle: bool) -> bool:
        """Until the server or somebody in this process says something; False if nobody does."""
        assert self._bell is not None
        poll = select.poll()
        if listener.looks is None:
            poll.register(listener.fileno(), select.POLLIN)
        poll.register(self._bell.fileno(), select.POLLIN)
        seconds = _LINGERS if idle else listener.looks or self._patience
        said = bool(poll.poll(1000 * seconds)) or idle or listener.looks is not None
        with suppress(OSError):
            while self._bell.recv(4096):
                pass
        return said

    def _close_listener(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            with suppress(Exception):
                listener.close()


def _start(target: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=target, name="ropewalk-pubsub", daemon=True)
    thread.start()
    return thread
