"""Retries of lost connections: backoff until a deadline, which a caller can shorten.

An engine retries a lost connection for as long as a call may take. A caller that can do without
the engine, as in degraded mode, wants the error sooner and shortens that with `limit_retries`.
It does not shorten the wait for an answer: a slow server is not gone.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

PATIENCE: Final = 5.0
"""Seconds after which a server that does not answer is taken for dead."""

_FIRST_RECONNECT, _LAST_RECONNECT = 0.05, 1.0  # Seconds.

_limit: ContextVar[float | None] = ContextVar("ropewalk_limit", default=None)


class Backoff:
    """Jittered waits, growing from `first` to `last` seconds, until a deadline."""

    def __init__(self, seconds: float, first: float, last: float) -> None:
        self._deadline = time.monotonic() + seconds
        self._delay, self._last = first, last

    @property
    def remaining(self) -> float:
        """Seconds until the deadline."""
        return self._deadline - time.monotonic()

    def wait(self) -> bool:
        """Sleep a little; False if the time is over."""
        remaining = self.remaining
        if remaining <= 0:
            return False
        time.sleep(min(self._delay * random.uniform(0.5, 1.5), remaining))  # noqa: S311
        self._delay += (self._last - self._delay) / 4
        return True


@contextmanager
def limit_retries(seconds: float | None) -> Iterator[None]:
    """Inside the block, retry lost connections for at most `seconds`; None lifts the limit."""
    token = _limit.set(seconds)
    try:
        yield
    finally:
        _limit.reset(token)


def tries_for(seconds: float) -> float:
    """How long to retry a lost connection in a call with this timeout, within the limit."""
    limit = _limit.get()
    return seconds if limit is None else min(seconds, limit)


def pauses() -> Iterator[float]:
    """Exponential, jittered pauses between attempts to reconnect."""
    pause = _FIRST_RECONNECT
    while True:
        yield pause * random.uniform(0.5, 1.0)  # noqa: S311 - so that two do not keep step
        pause = min(2 * pause, _LAST_RECONNECT)
