"""Waiting for operations: a wake is a hint, the log is the truth."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias, TypeVar

from holdfast.store._asynchronous import Bell
from holdfast.store._forking import freed_after_fork

Waking: TypeAlias = Callable[[Callable[[], None]], AbstractContextManager[None]]
"""While entered, the function that it was given is called when there may be news."""


class Numbered(Protocol):
    """What is watched: an operation, or what became of one."""

    @property
    def sequence(self) -> int:
        """The number of the operation."""


N = TypeVar("N", bound=Numbered)


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


def watch(
    look: Callable[[int], list[N]], waking: Waking, after: int, patience: Patience
) -> Iterator[N]:
    """Yield what `look` finds after a number, now and as it comes."""
    news = freed_after_fork(threading.Event())
    with waking(news.set):
        while True:
            news.clear()  # Before looking, so that no wake is missed.
            found = look(after)
            for operation in found:
                after = operation.sequence
                yield operation
            if found:
                patience.renew()
                continue
            wait = patience.next_wait()
            if wait is not None and wait < 0:
                return
            news.wait(wait)


async def awatch(
    look: Callable[[int], Awaitable[list[N]]],
    waking: Waking,
    after: int,
    patience: Patience,
) -> AsyncIterator[N]:
    """The same for an event loop; no thread waits."""
    bell = Bell()
    with waking(bell.ring):
        while True:
            bell.still()
            found = await look(after)
            for operation in found:
                after = operation.sequence
                yield operation
            if found:
                patience.renew()
                continue
            wait = patience.next_wait()
            if wait is not None and wait < 0:
                return
            await bell.wait(wait)
