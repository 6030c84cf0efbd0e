"""Pacing for background threads: they sleep often, so that they do not hold the GIL for long.

A thread that computes releases the GIL when another has waited for 5 ms. That is ten times as
long as a commit takes, and a commit acquires the GIL some ten times.
"""

from __future__ import annotations

import threading
import time
from typing import Final

_PORTION: Final = 0.0004
_PAUSE: Final = 0.001

_threads: Final = threading.local()


class Pace:
    """How fast a thread works: with rests, unless it is `hurried`."""

    def __init__(self) -> None:
        self.hurried = False
        self._began = 0.0

    def keep(self) -> None:
        """From now on, calls of `pause` in the current thread rest at this pace."""
        _threads.pace = self
        self._began = time.perf_counter()

    def rest(self) -> None:
        """Sleep for a moment, if this thread has worked for long enough."""
        if not self.hurried and time.perf_counter() - self._began > _PORTION:
            time.sleep(_PAUSE)
            self._began = time.perf_counter()


def pause() -> None:
    """Rest, if the current thread has a pace; called now and then in long computations."""
    pace: Pace | None = getattr(_threads, "pace", None)
    if pace is not None:
        pace.rest()
