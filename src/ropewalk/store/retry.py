"""How long to try again: short waits until a deadline, which callers in a hurry bring forward.

An engine tries a lost connection again for as long as a call may take. Whoever has an answer
without the engine had rather be told soon. An answer that is on its way is waited for as
always: a server that is slow is not gone.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_FIRST_RECONNECT, _LAST_RECONNECT = 0.05, 1.0  # Seconds.

_hurry: ContextVar[float | None] = ContextVar("ropewalk_hurry", default=None)


class Backoff:
    """Short waits until a deadline, each of another length so that two do not keep step."""

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
def hasty(seconds: float | None) -> Iterator[None]:
    """Within, a lost connection is tried again for so long at most; None: as long as always."""
    token = _hurry.set(seconds)
    try:
        yield
    finally:
        _hurry.reset(token)


def tries_for(seconds: float) -> float:
    """For how long to try a lost connection again, where a call may take so many seconds."""
    hurry = _hurry.get()
    return seconds if hurry is None else min(seconds, hurry)


def pauses() -> Iterator[float]:
    """Pauses before connecting again: longer each time, so that a server is not run over."""
    pause = _FIRST_RECONNECT
    while True:
        yield pause * random.uniform(0.5, 1.0)  # noqa: S311 - so that two do not keep step
        pause = min(2 * pause, _LAST_RECONNECT)
