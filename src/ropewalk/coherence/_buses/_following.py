"""Which topics a bus over a server must follow, and who waits until it does."""

from __future__ import annotations

import logging
import random
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from ropewalk.coherence._buses._bus import Subscription
from ropewalk.coherence._buses._exchange import Exchange
from ropewalk.coherence._forking import tell_after_fork
from ropewalk.store.forking import freed_after_fork

OUTBOX = 4096
"""Messages that wait while the server is away: then the oldest are dropped."""

CLOSES = 1.0
"""Seconds that closing waits for a server."""

_SUBSCRIBES = 2.0  # Seconds that a new subscriber waits for the server at most.
_FIRST_PAUSE, _LAST_PAUSE = 0.05, 1.0

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
        tell_after_fork(self)

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
            if not self._late:  # Who comes while others wait in vain need not wait as well.
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


def pauses() -> Iterator[float]:
    """Longer each time, so that a server that comes back is not run over."""
    pause = _FIRST_PAUSE
    while True:
        yield pause * random.uniform(0.5, 1.0)  # noqa: S311 - so that two do not keep step
        pause = min(2 * pause, _LAST_PAUSE)
