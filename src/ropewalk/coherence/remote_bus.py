"""Buses over a server with two connections, each with a thread of its own.

One thread sends what was handed over, the other listens. Both connect again by themselves.
Nobody but these threads ever waits for the server, except a new subscriber, for a moment.
"""

from __future__ import annotations

import logging
import select
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import NamedTuple

from ropewalk.coherence.bus import MAX_MESSAGE_BYTES, Subscription
from ropewalk.coherence.local_bus import QUEUE, Exchange
from ropewalk.coherence.timers import pauses, reset_after_fork
from ropewalk.store.forking import freed_after_fork

OUTBOX = 4096
"""Messages that wait while the server is away: then the oldest are dropped."""

CLOSES = 1.0
"""Seconds that closing waits for a server."""

_SUBSCRIBES = 2.0  # Seconds that a new subscriber waits for the server at most.

_log = logging.getLogger("ropewalk.coherence")


class Changes(NamedTuple):
    """What to ask the server for, and what no more."""

    follow: list[str]
    leave: list[str]


class FollowingBus(ABC):
    """The part of a `Bus` over a server that subscribers see.

    `failures` counts how often a connection failed, `lost` how many messages were dropped
    because the server was away.
    """

    def __init__(self, queue: int) -> None:
        self._exchange = Exchange(queue)
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

    @abstractmethod
    def _rouse(self) -> None:
        """Have the thread that listens look at what changed, and start it if there is none."""

    def subscribe(
        self, topic: str, receive: Callable[[bytes], None], gap: Callable[[], None] | None = None
    ) -> Subscription:
        """Call `receive` with the messages of a topic, on a thread of the bus."""
        entry = self._exchange.add(topic, receive, gap, self._touch)
        with self._lock:
            if topic in self._following:
                return entry
        self._touch(topic)
        with self._settled:
            if not self._late:  # While others wait without success, a new one need not wait.
                self._settled.wait_for(lambda: self._is_settled(topic), _SUBSCRIBES)
            if not self._is_settled(topic):
                self._late.add(topic)
        return entry

    def on_gap(self, doubt: Callable[[], None]) -> Callable[[], None]:
        """Call `doubt` when messages may have been lost; the way to stop that."""
        return self._exchange.on_gap(doubt)

    def after_fork(self) -> None:
        """Begin anew in a child."""
        self._begin()
        self._exchange.after_fork()

    def _is_settled(self, topic: str) -> bool:
        return topic in self._following or self._away or self._over.is_set()

    # For the thread that listens.

    def _touch(self, topic: str) -> None:
        """Have somebody look whether a topic is to be followed or left."""
        self._touched.append(topic)
        if not self._over.is_set():
            self._rouse()

    def _touch_all(self) -> None:
        for topic in self._exchange.topics():
            self._touch(topic)

    def _changes(self) -> Changes:
        touched: set[str] = set()
        with suppress(IndexError):
            while True:
                touched.add(self._touched.popleft())
        with self._lock:  # A subscriber looks, after it was entered, whether its topic is followed.
            wanted = {topic for topic in touched if self._exchange.listeners(topic)}
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
            self._exchange.doubt()

    def _follows_all(self) -> bool:
        return self._following.issuperset(self._exchange.topics())

    def _connected(self) -> None:
        """There is a connection: everything is to be followed."""
        self._touched.extend(self._exchange.topics())
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
            self._exchange.doubt()

    def _failed(self, error: BaseException) -> None:
        self.failures += 1
        if self.failures == 1:
            _log.warning("%r lost its server: %s; more of it is not said", self, error)


PATIENCE = 5.0
"""Seconds after which a server that does not answer is taken for dead."""

_BATCH = 256
_TRIES = 3


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


class RemoteBus(FollowingBus):
    """A `Bus` over a server. Connects when it is first used, and again after each failure.

    `failures` counts how often a connection failed, `lost` how many messages were dropped
    because the server was away. In a forked process it connects anew; what the parent
    subscribed to is listened to there after the first call.
    """

    message_limit = MAX_MESSAGE_BYTES
    """The most bytes that one message may have."""

    def __init__(self, *, queue: int = QUEUE, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._left_behind: list[object] = []
        super().__init__(queue)

    def _begin(self) -> None:
        super()._begin()
        self._outbox: SimpleQueue[tuple[str, bytes] | None] = SimpleQueue()
        self._sending: threading.Thread | None = None
        self._listening: threading.Thread | None = None
        self._sender: Sender | None = None
        self._listener: Listener | None = None
        self._bell: socket.socket | None = None
        self._ring: socket.socket | None = None

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

    def close(self) -> None:
        """Send what is left if that is quick, and let go of the connections."""
        with self._settled:
            if self._over.is_set():
                return
            self._over.set()
            self._settled.notify_all()
        self._outbox.put(None)
        self._ring_bell()
        until = time.monotonic() + CLOSES
        for thread in (self._sending, self._listening):
            if thread is not None and thread is not threading.current_thread():
                thread.join(max(until - time.monotonic(), 0))
        self._exchange.close()

    def after_fork(self) -> None:
        """Begin anew in a child. The connections are the parent's: they are not even closed."""
        self._left_behind += [self._sender, self._listener, self._bell, self._ring]
        super().after_fork()

    # Sending.

    def _start_sending(self) -> None:
        with self._lock:
            if self._sending is None:
                self._sending = _start(self._send)
        if self._listening is None:  # In a forked process, the parent's subscriptions go on.
            self._touch_all()

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
                self._pass_on(self._listener, doubted=first)
            except Exception as error:  # noqa: BLE001 - whatever a driver raises, it is tried again
                first = False
                self._failed(error)
                self._drop_listener()
                self._over.wait(next(pause))
        self._drop_listener()
        for one in (self._bell, self._ring):
            if one is not None:
                one.close()

    def _pass_on(self, listener: Listener, *, doubted: bool) -> None:
        """Deliver what is received until the connection fails or the bus is closed."""
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
                    self._exchange.deliver(topic, message)
            if not doubted and self._follows_all():
                # Not before all is followed again: from now on everything is received.
                self._exchange.doubt()
                doubted = True
            if not self._wait(listener):
                listener.ask()

    def _wait(self, listener: Listener) -> bool:
        """Until the server or somebody in this process says something; False if nobody does."""
        assert self._bell is not None
        poll = select.poll()
        poll.register(listener.fileno(), select.POLLIN)
        poll.register(self._bell.fileno(), select.POLLIN)
        said = bool(poll.poll(1000 * self._patience))
        with suppress(OSError):
            while self._bell.recv(4096):
                pass
        return said

    def _drop_listener(self) -> None:
        self._disconnected()
        listener, self._listener = self._listener, None
        if listener is not None:
            with suppress(Exception):
                listener.close()


def _start(target: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=target, name="ropewalk-bus", daemon=True)
    thread.start()
    return thread
