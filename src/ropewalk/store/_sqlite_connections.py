"""Connections to a database: how they are opened, and those that one process has.

A connection serves one call at a time, and stays in the process that opened it.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from ropewalk.store._forking import freed_after_fork
from ropewalk.store._sqlite_errors import is_busy
from ropewalk.store._turns import Patience

R = TypeVar("R")

# A log that is written over is synced faster than one that grows, so it begins anew early; a
# longer one is not measurably faster. One that a large commit made longer is cut.
_CHECKPOINT_PAGES = 1000
_LARGEST_LOG = 2 * 1024 * 1024
_CACHE_KILOBYTES = 8192

OPENING = freed_after_fork(threading.Lock())
"""Held while a connection opens its file, and while somebody else reads that file: to close it
once more would release the locks that SQLite holds on it for the whole process."""


class Connector:
    """Opens connections to one database, and knows those that are open."""

    def __init__(self, file: Path, vfs: str | None, synchronous: str, busy_seconds: float) -> None:
        self.file = file
        self._vfs = "" if vfs is None else f"&vfs={vfs}"
        self._busy_seconds = busy_seconds
        self._pragmas = (
            synchronous,
            f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}",
            f"PRAGMA journal_size_limit = {_LARGEST_LOG}",
            f"PRAGMA cache_size = -{_CACHE_KILOBYTES}",
            "PRAGMA secure_delete = OFF",
        )
        self._opened: list[sqlite3.Connection] = []

    def connect(self, mode: str = "rw") -> sqlite3.Connection:
        """A new connection."""
        with OPENING:
            db = sqlite3.connect(
                f"{self.file.as_uri()}?mode={mode}{self._vfs}",
                uri=True,
                timeout=0,  # We wait ourselves, in turn.
                isolation_level=None,
                check_same_thread=False,
                cached_statements=256,
            )
        self._opened.append(db)
        try:
            for pragma in self._pragmas:
                self.wait_for_others(partial(db.execute, pragma))
        except BaseException:
            self.disconnect(db)
            raise
        return db

    def disconnect(self, db: sqlite3.Connection) -> None:
        """Close a connection."""
        try:
            db.close()
        finally:
            self._opened.remove(db)

    def wait_for_others(self, step: Callable[[], R]) -> R:
        """Do a step that SQLite refuses while others recover or close the database."""
        try:
            return step()
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
        patience = Patience(self._busy_seconds, first=0.0005, last=0.01)
        while True:
            try:
                return step()
            except sqlite3.OperationalError as error:
                if not is_busy(error) or not patience.wait():
                    raise

    def abandon(self) -> None:
        """In a child: let what the parent has open be, whatever becomes of this process.

        To close it, even by ending, could change the log under the parent: a transaction
        that was open at the fork would be taken back in memory that both share.
        """
        if self._opened:
            import ctypes  # Slow to import, and needed only here.
        for db in self._opened:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(db))
        self._opened = []


class Connections:
    """The connections of one process, and the gate that a fork waits at."""

    def __init__(self, connector: Connector, before_writing: Callable[[], None]) -> None:
        self._connector, self._before_writing = connector, before_writing
        self._free: list[sqlite3.Connection] = []
        self._writer: sqlite3.Connection | None = None
        self._prepared = False
        """Whether `before_writing` was called since SQLite may last have recovered the log."""
        self._used = 0
        self._closed = False
        self._awaited = False
        self._changed = threading.Condition(threading.Lock())

    def take(self, to_write: bool) -> sqlite3.Connection:
        """A connection for one call. One that writes is the one that wrote before, if it can."""
        with self._changed:
            self._used += 1
            db = self._choose(to_write) if self._free else None
        try:
            if db is None:
                db = self._connector.connect()
            if to_write:
                if not self._prepared:
                    self._before_writing()
                    self._prepared = True
                self._writer = db
        except BaseException:
            self._leave(db)
            raise
        return db

    def give_back(self, db: sqlite3.Connection, sound: bool) -> None:
        """Keep a connection for the next call, unless something was wrong with it."""
        if not sound:
            self._prepared = False  # It may be the last one, and the next one recovers the log.
            with suppress(sqlite3.Error):
                self._connector.disconnect(db)
        self._leave(db if sound else None)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Be among those whom a fork waits for."""
        with self._changed:
            self._used += 1
        try:
            yield
        finally:
            self._leave(None)

    def halt(self, deadline: float) -> bool:
        """Let nobody in, and wait until then for those inside; whether `resume` is due."""
        if not self._changed.acquire(timeout=max(deadline - time.monotonic(), 0)):
            return False  # Held by the thread that forks, in a signal's handler.
        self._awaited = True
        self._changed.wait_for(lambda: self._used == 0, max(deadline - time.monotonic(), 0))
        self._awaited = False
        return True

    def resume(self) -> None:
        """Let others in again."""
        self._changed.release()

    def close(self, seconds: float) -> None:
        """Wait for the calls that are under way, then close everything."""
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: self._used == 0, seconds)
            free, self._free = self._free, []
        with self.inside():
            # A log that others still use, or that finds no room, stays for the next one.
            with suppress(sqlite3.Error):
                if free:
                    free[0].execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            for db in free:
                with suppress(sqlite3.Error):
                    self._connector.disconnect(db)

    def _choose(self, to_write: bool) -> sqlite3.Connection:
        free = self._free
        if free[-1] is self._writer:
            return free.pop() if to_write or len(free) == 1 else free.pop(0)
        if to_write and self._writer in free:
            free.remove(self._writer)
            return self._writer
        return free.pop()

    def _leave(self, db: sqlite3.Connection | None) -> None:
        with self._changed:
            self._used -= 1
            if db is not None:
                self._free.append(db)
            if self._closed or self._awaited:
                self._changed.notify_all()
