"""A thread that works behind the back of others, in portions so short that nobody waits for it.

Python runs one thread at a time. One that computes gives up its turn when another has waited for
5 ms, which is ten times what a commit takes, and a commit asks for its turn some ten times.
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
        """Let the thread that calls this pause from now on, wherever its work calls `pause`."""
        _threads.pace = self
        self._began = time.perf_counter()

    def rest(self) -> None:
        """Let others have their turns, if this thread has had one."""
        if not self.hurried and time.perf_counter() - self._began > _PORTION:
            time.sleep(_PAUSE)
            self._began = time.perf_counter()


def pause() -> None:
    """Rest for a moment, on a thread that keeps a pace."""
    pace: Pace | None = getattr(_threads, "pace", None)
    if pace is not None:
        pace.rest()
