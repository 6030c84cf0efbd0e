"""The right to change a folder: one thread of one process at a time has it.

Among the threads of a store object there is a queue, among processes a lock on a file
(`flock`), which is tried after short waits of random length. A lock ends with its process.

The file's content says what its holder was about to do. Whoever finds that in it knows
that the one before did not come to its end. It is only for the time that the machine
runs, so it is never synced: what is there after a power loss is durable anyway.
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
except ImportError:  # A system without them: such a store is refused when it is opened.
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
        """Wait for the lock; whether it was got."""
        while not self._try():
            if not backoff.wait():
                return False
        return True

    def release(self) -> None:
        """Let the next one in."""
        if self._file is not None:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def begin(self, what: str) -> None:
        """Note what is about to change."""
        assert self._file is not None
        os.pwrite(self._file, _BEGUN + what.encode() + b"\n", 0)

    def done(self) -> None:
        """Note that everything is as durable as it must be."""
        assert self._file is not None
        os.pwrite(self._file, _DONE, 0)

    def unfinished(self) -> str | None:
        """What somebody began and did not end."""
        assert self._file is not None
        noted = os.pread(self._file, _LONGEST, 0)
        if not noted.startswith(_BEGUN):
            return None
        return noted[1:].partition(b"\n")[0].decode("ascii", "replace")

    def close(self) -> None:
        """Let go of the file, and of the lock."""
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
            self.close()  # Somebody removed the file: others would lock another one.
            return False
        return True

    def _is_current(self) -> bool:
        assert self._file is not None
        try:
            return os.path.samestat(os.fstat(self._file), os.stat(self._path))
        except FileNotFoundError:
            return False


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


class WriteLock:
    """The right to change one folder. Safe to share between threads and to carry over a fork."""

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
        """Be the one writer; `Unavailable` if others write for too long."""
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
        """Keep `close` waiting until this is over."""
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
        """Wait for those who are inside, and let go."""
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
    """What one process has open."""

    def __init__(self, folder: Path) -> None:
        self.queue = Queue()
        self.lock = Lock(folder / LOCK)
        self.users = 0
        self.changed = threading.Condition()


_locks: WeakSet[Lock] = WeakSet()


def _leave_to_the_parent() -> None:
    # A lock belongs to the open file, which a child shares: it would outlive the parent.
    for lock in list(_locks):
        lock.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_the_parent)
