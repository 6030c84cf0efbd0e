"""Time, as the protocol sees it: clocks, waiting, and work in the background.

The modules of the protocol take all of it from one `Time`. A simulator hands in its own, with
virtual clocks and timers that are no threads.
"""

from __future__ import annotations

import logging
import random
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

steady_clock: Final[Callable[[], float]] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME)
    if hasattr(time, "CLOCK_BOOTTIME")
    else time.monotonic
)
"""Seconds that only go forward, also while the machine sleeps, where that is known.

Linux stops `time.monotonic` meanwhile: a lease would be served for as long as it slept.
"""

_SHORTEST_PAUSE: Final = 0.002
_LONGEST_PAUSE: Final = 0.1
_NEVER: Final = float("inf")

_log = logging.getLogger("ropewalk.coherence")


def timestamp() -> int:
    """The time of day in microseconds since 1970, for logs and for people."""
    return time.time_ns() // 1000


class Background(Protocol):
    """What has work to do at intervals."""

    def step(self) -> float | None:
        """Do what is due; how many seconds until the next time, or None to end."""


class Timer:
    """A daemon thread that calls `step` of its owner, as long as there is something to do.

    The owner is held by a weak reference, so the thread ends with an owner that was not closed.
    """

    def __init__(self, owner: Background, name: str) -> None:
        self._owner: Callable[[], Background | None] = weakref.ref(owner)
        self._name = name
        self.reset()

    def reset(self) -> None:
        """Forget the thread, which is not in this process, and locks that nobody releases."""
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._needed = False
        self.closed = False
        """Whether it is over."""

    def start(self) -> None:
        """Let the thread run; it does what is due when it is due."""
        if self._needed and self._thread is not None:
            return
        with self._lock:
            self._needed = True
            if self._thread is None and not self.closed:
                thread = threading.Thread(
                    target=_run, args=(self._owner, self), name=self._name, daemon=True
                )
                try:
                    thread.start()
                except RuntimeError:
                    return  # The process ends, or has no room for a thread: the next one tries.
                self._thread = thread

    def wake(self) -> None:
        """Let the thread look at once for what is due."""
        self.start()
        self._wake.set()

    def abandon(self) -> None:
        """End soon, without waiting. Takes no lock."""
        self.closed = True

    def close(self, timeout: float | None = None) -> None:
        """Do nothing more; what is being done is finished first, or `timeout` is over."""
        with self._lock:
            self.closed = True
            thread = self._thread
        self._wake.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)

    def begin_turn(self) -> None:
        """Clear the request before a step: a `start` during the step causes another one."""
        with self._lock:
            self._needed = False

    def may_end(self) -> bool:
        """Whether the thread may end, as no `start` came since; a later one starts a new thread."""
        with self._lock:
            if self._needed and not self.closed:
                return False
            self._thread = None
            return True

    def rest(self, seconds: float) -> None:
        """Wait, unless somebody wakes the thread."""
        self._wake.wait(seconds)
        self._wake.clear()


def _run(owner_of: Callable[[], Background | None], timer: Timer) -> None:
    reported: set[type[BaseException]] = set()
    while not timer.closed:
        timer.begin_turn()
        owner = owner_of()
        if owner is None:
            return
        pause: float | None
        try:
            pause = owner.step()
        except Exception as error:  # noqa: BLE001
            # The thread must go on: what it renews is held by agents that know nothing of this.
            if type(error) not in reported:
                reported.add(type(error))
                _log.exception("background work of coherence met an error, and goes on")
            pause = 1.0
        del owner  # Keep no strong reference between steps.
        if pause is not None:
            timer.rest(pause)
        elif timer.may_end():
            return


@dataclass(frozen=True, slots=True)
class Time:
    """The clocks, waits and timers of one client."""

    clock: Callable[[], float] = steady_clock
    """Seconds that only go forward, by which leases and bounds are counted."""
    monotonic: Callable[[], float] = time.monotonic
    """Seconds by which it is counted for how long a call waits."""
    nanoseconds: Callable[[], int] = time.time_ns
    """The time of day, since 1970."""
    sleep: Callable[[float], None] = time.sleep
    wait: Callable[[threading.Condition, float], Any] = threading.Condition.wait
    """Wait for a condition, at most so many seconds."""
    timer: Callable[[Any, str], Timer] = Timer
    """What calls `step` of a `Background` in the background."""


class RetrySchedule:
    """How long to wait between tries, and for how long to try."""

    def __init__(self, timeout: float | None, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._end = _NEVER if timeout is None else clock() + timeout
        self._next = _SHORTEST_PAUSE

    def pause(self) -> float | None:
        """Seconds to wait before the next try; None if there is to be none."""
        left = self._end - self._clock()
        if left <= 0:
            return None
        # Uneven, so that those who wait do not come all at once.
        pause = min(self._next * random.uniform(0.5, 1.0), left)  # noqa: S311 - no secret
        self._next = min(2 * self._next, _LONGEST_PAUSE)
        return pause
