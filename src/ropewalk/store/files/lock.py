"""The write lock of a folder: held by one thread of one process at a time.

Threads of a store object queue; processes lock a file (`flock`), retrying after short random
waits. A lock ends with its process.

The lock file contains what its holder is about to do. A writer that finds an entry there knows
that the previous one did not finish. This need not survive a crash of the machine, so it is never
synced: whatever exists after a power loss is durable anyway.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from weakref import WeakSet

from ropewalk.errors import NotAllowed, StoreClosed
from ropewalk.store.folder import too_busy
from ropewalk.store.retry import Backoff

try:
    import fcntl
except ImportError:  # Systems without flock: a store is refused when it is opened.
    fcntl = None  # type: ignore[assignment]

LOCK = "lock"

_BEGUN, _DONE = b"!", b"."
_LONGEST = 1024


class Lock:
    """A lock on a file, for one thread at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        _locks.add(self)

    def take(self, backoff: Backoff) -> bool:
        """Wait for the lock; returns whether it was acquired."""
        while not self._try():
            if not backoff.wait():
                return False
        return True

    def release(self) -> None:
        """Release the lock."""
        if self._file is not None:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def begin(self, what: str) -> None:
        """Record what is about to change."""
        assert self._file is not None
        os.pwrite(self._file, _BEGUN + what.encode() + b"\n", 0)

    def done(self) -> None:
        """Record that everything is as durable as it must be."""
        assert self._file is not None
        os.pwrite(self._file, _DONE, 0)

    def unfinished(self) -> str | None:
        """What a previous holder began and did not finish."""
        assert self._file is not None
        noted = os.pread(self._file, _LONGEST, 0)
        if not noted.startswith(_BEGUN):
            return None
        return noted[1:].partition(b"\n")[0].decode("ascii", "replace")

    def close(self) -> None:
        """Close the file, which releases the lock."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                os.close(file)

    def _try(self) -> bool:
        if self._file is None:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        if not self._is_current():
            self.close()  # The file was removed: other processes would lock a new one.
            return False
        return True

    def _is_current(self) -> bool:
        assert self._file is not None
        try:
            return os.path.samestat(os.fstat(self._file), os.stat(self._path))
        except FileNotFoundError:
            return False


class Queue:
    """A fair lock: threads acquire it in order of arrival."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()
        self._held = False

    def enter(self, seconds: float) -> bool:
        """Wait for the lock until a timeout; returns whether it was acquired."""
        with self._lock:
            if not self._held:
                self._held = True
                return True
            mine = threading.Lock()
            mine.acquire()
            self._waiting.append(mine)
        try:
            return mine.acquire(timeout=max(seconds, 0)) or self._handed_over(mine)
        except BaseException:  # After an interrupt, nobody may wait for a lock that nobody holds.
            if self._handed_over(mine):
                self.leave()
            raise

    def leave(self) -> None:
        """Hand the lock to the thread that has waited longest."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._held = False

    def _handed_over(self, mine: threading.Lock) -> bool:
        """Stop waiting; returns whether the lock was handed over at the last moment."""
        with self._lock:
            if mine in self._waiting:
                self._waiting.remove(mine)
                return False
        return True


class WriteLock:
    """The write lock of one folder. Safe to share between threads and across a fork."""

    def __init__(self, folder: Path, busy_seconds: float) -> None:
        if fcntl is None:
            raise NotAllowed(
                f"the folder {folder} cannot hold a store of plain files: this system has no "
                "flock. Use SqliteStore."
            )
        self._folder = folder
        self._busy_seconds = busy_seconds
        self._closed = False
        self._processes: dict[int, _Process] = {}

    @contextmanager
    def held(self) -> Iterator[Lock]:
        """Hold the lock; raises `Unavailable` if other writers hold it for too long."""
        process = self._here()
        backoff = Backoff(self._busy_seconds, first=0.0002, last=0.002)
        if not process.queue.enter(backoff.remaining):
            raise too_busy(self._folder, self._busy_seconds)
        try:
            if not process.lock.take(backoff):
                raise too_busy(self._folder, self._busy_seconds)
            try:
                yield process.lock
            finally:
                process.lock.release()
        finally:
            process.queue.leave()

    @contextmanager
    def using(self) -> Iterator[None]:
        """Delay `close` until the block ends."""
        process = self._here()
        with process.changed:
            if self._closed:
                raise StoreClosed(f"the store in {self._folder} was closed")
            process.users += 1
        try:
            yield
        finally:
            with process.changed:
                process.users -= 1
                process.changed.notify_all()

    def close(self) -> None:
        """Wait for current holders, and close."""
        process = self._here()
        with process.changed:
            self._closed = True
            process.changed.wait_for(lambda: process.users == 0, self._busy_seconds)
        process.lock.close()

    def _here(self) -> _Process:
        pid = os.getpid()
        found = self._processes.get(pid)
        if found is None:
            found = self._processes.setdefault(pid, _Process(self._folder))
        return found


class _Process:
    """The open resources of one process."""

    def __init__(self, folder: Path) -> None:
        self.queue = Queue()
        self.lock = Lock(folder / LOCK)
        self.users = 0
        self.changed = threading.Condition()


_locks: WeakSet[Lock] = WeakSet()


def _leave_to_the_parent() -> None:
    # A lock belongs to the open file, which a child shares and which would outlive the parent.
    for lock in list(_locks):
        lock.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_the_parent)
