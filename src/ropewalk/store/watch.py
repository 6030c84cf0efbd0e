"""Waiting for operations: a wake is a hint, the log is the truth."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Final, NamedTuple, TypeAlias, TypeVar

from ropewalk.errors import Rewound
from ropewalk.store.asynchronous import Bell
from ropewalk.store.forking import freed_after_fork
from ropewalk.store.model import Operation

Waking: TypeAlias = Callable[[Callable[[], None]], AbstractContextManager[None]]
"""While entered, the function that it was given is called when there may be news."""


N = TypeVar("N")


class Position(NamedTuple):
    """An operation up to which a log was read, and what tells it from another of its number."""

    sequence: int
    write_id: str | None = None
    """None if only its number is known."""

    def is_at(self, operation: Operation) -> bool:
        """Whether an operation is this one, as far as is known."""
        return operation.sequence == self.sequence and self.write_id in (None, operation.write_id)


class Log:
    """The operations of one space; raises `Rewound` if they are no longer those that were seen."""

    def __init__(self, space: str, read: Callable[[int], list[Operation]]) -> None:
        self._space, self._read = space, read
        """Gives some operations after a number."""

    def after(self, last: Position) -> tuple[list[Operation], Position]:
        """Some operations after one that was seen, and the position up to which they reach."""
        # With the last one that is known, which tells whether this is still the same log.
        found = self._read(max(0, last.sequence - 1))
        if last.sequence:
            if not found or not last.is_at(found[0]):
                raise Rewound(
                    f"the log of {self._space!r} no longer has the operation {last.sequence} that "
                    "was seen: its engine went back in time. Read everything anew, and follow "
                    "the log from there."
                )
            last = _position(found.pop(0))
        return found, _position(found[-1]) if found else last

    def looking(self, after: int) -> Callable[[], list[Operation]]:
        """What gives the next operations, each time that it is called."""
        position = Position(after)

        def look() -> list[Operation]:
            nonlocal position
            found, position = self.after(position)
            return found

        return look


def _position(operation: Operation) -> Position:
    return Position(operation.sequence, operation.write_id)


class Patience:
    """How long to wait for the next operation."""

    def __init__(self, timeout: float | None, poll: float | None) -> None:
        self._timeout = timeout
        self._poll = poll
        self.renew()

    def renew(self) -> None:
        """Something came: begin again."""
        self._since = time.monotonic()

    def next_wait(self) -> float | None:
        """Seconds until the next look, None for as long as it takes; negative if over."""
        if self._timeout is None:
            return self._poll
        remaining = self._since + self._timeout - time.monotonic()
        if remaining <= 0:
            return -1.0
        return remaining if self._poll is None else min(remaining, self._poll)


def watch(look: Callable[[], list[N]], waking: Waking, patience: Patience) -> Iterator[N]:
    """Yield what `look` finds, each time what comes next: now and as it comes."""
    news = freed_after_fork(threading.Event())
    with waking(news.set):
        while True:
            news.clear()  # Before looking, so that no wake is missed.
            found = look()
            yield from found
            if found:
                patience.renew()
                continue
            wait = patience.next_wait()
            if wait is not None and wait < 0:
                return
            news.wait(wait)


async def awatch(
    look: Callable[[], Awaitable[list[N]]], waking: Waking, patience: Patience
) -> AsyncIterator[N]:
    """The same for an event loop; no thread waits."""
    bell = Bell()
    with waking(bell.ring):
        while True:
            bell.still()
            found = await look()
            for one in found:
                yield one
            if found:
                patience.renew()
                continue
            wait = patience.next_wait()
            if wait is not None and wait < 0:
                return
            await bell.wait(wait)


class Listeners:
    """For engines that hear only of what they commit themselves. Safe to share."""

    def __init__(self) -> None:
        self._lock = freed_after_fork(threading.Lock())
        self.wakes: defaultdict[str, list[Callable[[], None]]] = defaultdict(list)

    def add(self, space: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` after each operation of a space; the way to stop that."""
        with self._lock:
            self.wakes[space].append(wake)

        def stop() -> None:
            with self._lock:
                self.wakes[space].remove(wake)
                if not self.wakes[space]:
                    del self.wakes[space]

        return stop

    def wake(self, space: str) -> None:
        """Wake who waits for a space."""
        if not self.wakes:
            return
        with self._lock:
            wakes = tuple(self.wakes.get(space, ()))
        for wake in wakes:
            wake()

    def wake_all(self) -> None:
        """Wake everybody."""
        with self._lock:
            wakes = [wake for some in self.wakes.values() for wake in some]
        for wake in wakes:
            wake()


WAKE: Final = "wake"
"""The topic of a store whose messages are names of spaces that changed; an empty one is any."""


class Watchers(Listeners):
    """Who waits for operations of the spaces of a store: the subscriber of `WAKE`."""

    def spaces(self) -> list[str]:
        """The spaces that somebody waits for."""
        return list(self.wakes)

    def topics(self) -> Iterable[str]:
        """`WAKE`, if anybody waits."""
        return [WAKE] if self.wakes else []

    def listeners(self, topic: str) -> int:
        """How many spaces somebody waits for."""
        return len(self.wakes) if topic == WAKE else 0

    def deliver(self, topic: str, message: bytes) -> None:
        """Wake who waits for a space, or everybody."""
        if topic == WAKE:
            self.wake(message.decode()) if message else self.wake_all()

    def doubt(self) -> None:
        """Let everybody look once."""
        self.wake_all()
