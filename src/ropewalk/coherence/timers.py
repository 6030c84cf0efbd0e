"""Clocks, and work that is done at intervals in the background."""

from __future__ import annotations

import logging
import os
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, Protocol

steady: Final[Callable[[], float]] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME)
    if hasattr(time, "CLOCK_BOOTTIME")
    else time.monotonic
)
"""Seconds that only go forward, also while the machine sleeps, where it can tell.

Linux stops `time.monotonic` meanwhile: a lease would be served for as long as it slept.
"""

_logger = logging.getLogger("ropewalk.coherence")


class Beating(Protocol):
    """Who has something to do at intervals."""

    def step(self) -> float | None:
        """Do what is due; how many seconds until the next time, or None to end."""


class Beat:
    """A daemon thread that calls `step` of its owner. It ends with the owner.

    The owner is held weakly: one that nobody closed takes its thread along.
    """

    def __init__(self, owner: Beating, name: str) -> None:
        self._owner: Callable[[], Beating | None] = weakref.ref(owner)
        self._name = name
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget the thread, which is not in this process, and locks that nobody releases."""
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._needed = False
        self._closed = False

    def start(self) -> None:
        """Let the thread run; it does what is due when it is due."""
        if self._needed and self._thread is not None:
            return
        with self._lock:
            self._needed = True
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(
                    target=_run, args=(self._owner, self), name=self._name, daemon=True
                )
                self._thread.start()

    def wake(self) -> None:
        """Let the thread look at once for what is due."""
        self.start()
        self._wake.set()

    def close(self) -> None:
        """Do nothing more; what is being done is finished first."""
        with self._lock:
            self._closed = True
            thread = self._thread
        self._wake.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    @property
    def closed(self) -> bool:
        """Whether it is over."""
        return self._closed

    def begin_turn(self) -> None:
        """Forget who needed it: whoever does after this gets another turn."""
        with self._lock:
            self._needed = False

    def may_end(self) -> bool:
        """Whether nobody needs the thread any more; who does after this gets a new one."""
        with self._lock:
            if self._needed and not self._closed:
                return False
            self._thread = None
            return True

    def rest(self, seconds: float) -> None:
        """Wait, unless somebody wakes the thread."""
        self._wake.wait(seconds)
        self._wake.clear()


def _run(owner_of: Callable[[], Beating | None], beat: Beat) -> None:
    reported: set[type[BaseException]] = set()
    while not beat.closed:
        beat.begin_turn()
        owner = owner_of()
        if owner is None:
            return
        pause: float | None
        try:
            pause = owner.step()
        except Exception as error:
            # The thread must go on: what it renews is held by agents that know nothing of this.
            if type(error) not in reported:
                reported.add(type(error))
                _logger.exception("the beat of coherence met an error, and goes on")
            pause = 1.0
        del owner  # Between its turns, nothing here keeps it alive.
        if pause is not None:
            beat.rest(pause)
        elif beat.may_end():
            return


class Forkable(Protocol):
    """What is told, in the child, that a process was forked."""

    def after_fork(self) -> None:
        """Begin anew: threads are gone, locks may be held by nobody, connections are another's.

        Starts no thread: others are not told yet, and most children do nothing here. What is
        needed is started by who first needs it.
        """


_known: weakref.WeakSet[Forkable] = weakref.WeakSet()


def tell_after_fork(one: Forkable) -> None:
    """Call its `after_fork` in every child of this process, as long as it lives."""
    _known.add(one)


def _forked() -> None:
    failed: list[Exception] = []
    for one in list(_known):
        try:
            one.after_fork()
        except Exception as error:  # noqa: BLE001 - the others must begin anew all the same
            failed.append(error)
    if failed:
        raise ExceptionGroup("what a child of a fork could not begin anew", failed)


os.register_at_fork(after_in_child=_forked)


def timestamp() -> int:
    """The time of day in microseconds since 1970, for logs and for people."""
    return time.time_ns() // 1000


_SHORTEST_PAUSE: Final = 0.002
_LONGEST_PAUSE: Final = 0.1
_FIRST_RECONNECT, _LAST_RECONNECT = 0.05, 1.0
_NEVER: Final = float("inf")


class Patience:
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


def pauses() -> Iterator[float]:
    """Longer each time, so that a server that comes back is not run over."""
    pause = _FIRST_RECONNECT
    while True:
        yield pause * random.uniform(0.5, 1.0)  # noqa: S311 - so that two do not keep step
        pause = min(2 * pause, _LAST_RECONNECT)
