"""Who writes next: first among the threads of a process, then among the processes.

A folder has one writer at a time, and whoever waits must ask again and again. Left to
that, a writer that has just finished is back before anybody else has asked. So a writer
first takes a turn: a lock of its own that only the next writer holds, while it waits for
the right to write. Who has just finished finds the turn taken, and queues.

A turn is a courtesy. Nothing is wrong if it is not kept, so nobody waits long for one.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import deque
from pathlib import Path

try:
    import fcntl
except ImportError:  # A system without them: then there are no turns.
    fcntl = None  # type: ignore[assignment]

_COURTESY = 1.0  # Seconds to wait for a turn that somebody may hold asleep.


class Patience:
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


class Queue:
    """A lock that threads get in the order in which they came."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()
        self._held = False

    def enter(self, seconds: float) -> bool:
        """Wait for the lock, at most so long; whether it was got."""
        with self._lock:
            if not self._held:
                self._held = True
                return True
            mine = threading.Lock()
            mine.acquire()
            self._waiting.append(mine)
        try:
            return mine.acquire(timeout=max(seconds, 0)) or self._handed_over(mine)
        except BaseException:  # An interrupt: nobody may wait for a lock that nobody has.
            if self._handed_over(mine):
                self.leave()
            raise

    def leave(self) -> None:
        """Hand the lock to who has waited longest."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._held = False

    def _handed_over(self, mine: threading.Lock) -> bool:
        """Stop waiting; whether the lock was handed over at the last moment."""
        with self._lock:
            if mine in self._waiting:
                self._waiting.remove(mine)
                return False
        return True


class Turn:
    """The right to be the next to write, among processes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def take(self, seconds: float) -> None:
        """Wait until it is this process's turn, or until it is time to go ahead anyway."""
        if fcntl is None or self._try():
            return
        # The longer it waits, the more often it asks: who came first goes first, mostly.
        patience = Patience(min(seconds, _COURTESY), first=0.002, last=0.0008)
        while not self._try():
            if not patience.wait():
                return

    def pass_on(self) -> None:
        """Let the next one come."""
        if fcntl is not None and self._file is not None:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _try(self) -> bool:
        try:
            if self._file is None:
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return True  # A file system without such locks: then there are no turns.
        return True
