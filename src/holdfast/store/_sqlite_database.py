"""Connections to one database, from many threads and processes: reading and writing.

A connection serves one call at a time, and stays in the process that opened it.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from holdfast.errors import NotAllowed, StoreClosed
from holdfast.store._sqlite_errors import is_busy, translated
from holdfast.store._system_errors import too_busy
from holdfast.store._turns import Patience, Queue, Turn

R = TypeVar("R")

DATABASE = "store.db"
TURN = "store.turn"

# A checkpoint copies each changed page once, however often it changed: fewer are cheaper.
_CHECKPOINT_PAGES = 4000
_SYNCHRONOUS = {"full": "FULL", "relaxed": "NORMAL"}
_THROUGH = "PRAGMA synchronous = FULL"

# What a parent process had open. It is never used here, nor closed: closing would touch
# the parent's files.
_abandoned: list[object] = []


class Database:
    """A database in a folder. Safe to share between threads and to carry over a fork."""

    def __init__(
        self, folder: Path, durability: str, busy_seconds: float, vfs: str | None = None
    ) -> None:
        self.folder = folder
        self._vfs = "" if vfs is None else f"&vfs={vfs}"
        self._busy_seconds = busy_seconds
        self._usual = f"PRAGMA synchronous = {_SYNCHRONOUS[durability]}"
        self._pragmas = (self._usual, f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        self._closed = False
        self._processes: dict[int, _Process] = {}

    def read(self, ask: Callable[[sqlite3.Connection], R]) -> R:
        """What `ask` finds, all of it at one moment. Nobody is waited for."""
        with translated(self.folder):
            return self._retried(lambda db: _at_one_moment(db, ask))

    def read_once(self, ask: Callable[[sqlite3.Connection], R]) -> R:
        """The same for an `ask` of one statement, which is of one moment by itself."""
        with translated(self.folder):
            return self._retried(ask)

    def write(self, work: Callable[[sqlite3.Connection], R]) -> R:
        """Do work in one transaction, after those who came before.

        What it raises takes everything back. Raises `Unavailable` when others write for
        too long.
        """
        return self._queued(work, self._usual)

    def write_through(self, work: Callable[[sqlite3.Connection], R]) -> R:
        """The same, and it survives a power loss when it returns, at every durability.

        For what something outside the database is done upon that cannot be taken back.
        """
        return self._queued(work, _THROUGH)

    def create(self, is_new: Callable[[sqlite3.Connection], bool]) -> None:
        """Make the file if there is none, and see that it is one that several may use."""
        with translated(self.folder):
            db = self._connect("rwc")
            try:
                self._waiting_for_others(lambda: _at_one_moment(db, is_new))
                mode = self._waiting_for_others(
                    lambda: db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
                )
            finally:
                db.close()
        if mode != "wal":
            raise NotAllowed(
                f"the folder {self.folder} cannot hold a store: its file system gives several "
                "processes no shared memory. Choose a folder on a local disk."
            )

    def close(self) -> None:
        """Wait for those who are inside, bring the log into the database, and let go."""
        self._closed = True
        self._here().close(self._busy_seconds)

    def _queued(self, work: Callable[[sqlite3.Connection], R], synchronous: str) -> R:
        with translated(self.folder):
            process = self._here()
            patience = Patience(self._busy_seconds, first=0.0002, last=0.002)
            if not process.queue.enter(patience.remaining):
                raise too_busy(self.folder, self._busy_seconds)
            try:
                return self._written(process, patience, work, synchronous)
            finally:
                process.queue.leave()

    def _written(
        self,
        process: _Process,
        patience: Patience,
        work: Callable[[sqlite3.Connection], R],
        synchronous: str,
    ) -> R:
        db = self._take(process)
        sound = False
        try:
            if synchronous != self._usual:
                db.execute(synchronous)
            process.turn.take(patience.remaining)
            try:
                self._begin(db, patience)
            finally:
                process.turn.pass_on()
            done = work(db)
            db.execute("COMMIT")
            if synchronous != self._usual:
                db.execute(self._usual)
            sound = True
            return done
        except sqlite3.Error:
            raise
        except BaseException:
            db.rollback()
            sound = synchronous == self._usual
            raise
        finally:
            process.give_back(db, sound)

    def _begin(self, db: sqlite3.Connection, patience: Patience) -> None:
        while True:
            try:
                db.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if not is_busy(error):
                    raise
                if not patience.wait():
                    raise too_busy(self.folder, self._busy_seconds) from error

    def _retried(self, ask: Callable[[sqlite3.Connection], R]) -> R:
        """A reader waits only while a database is recovered after a crash, or closed."""
        process = self._here()
        db = self._take(process)
        sound = False
        try:
            found = self._waiting_for_others(lambda: ask(db))
            sound = True
            return found
        finally:
            process.give_back(db, sound)

    def _waiting_for_others(self, step: Callable[[], R]) -> R:
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

    def _here(self) -> _Process:
        pid = os.getpid()
        found = self._processes.get(pid)
        if found is None:
            for parents in self._processes.values():
                parents.turn.close()  # Else this process would go on holding it.
                _abandoned.append(parents)
            found = self._processes.setdefault(pid, _Process(self.folder, self._connect))
        return found

    def _take(self, process: _Process) -> sqlite3.Connection:
        if self._closed:
            raise StoreClosed(f"the store in {self.folder} was closed")
        return process.take()

    def _connect(self, mode: str = "rw") -> sqlite3.Connection:
        db = sqlite3.connect(
            f"{(self.folder / DATABASE).as_uri()}?mode={mode}{self._vfs}",
            uri=True,
            timeout=0,  # We wait ourselves, in turn.
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        try:
            for pragma in self._pragmas:
                self._waiting_for_others(partial(db.execute, pragma))
        except BaseException:
            db.close()
            raise
        return db


class _Process:
    """What one process has open."""

    def __init__(self, folder: Path, connect: Callable[[], sqlite3.Connection]) -> None:
        self.queue = Queue()
        self.turn = Turn(folder / TURN)
        self._connect = connect
        self._free: list[sqlite3.Connection] = []
        self._used = 0
        self._closed = False
        self._changed = threading.Condition()

    def take(self) -> sqlite3.Connection:
        """A connection for one call."""
        with self._changed:
            self._used += 1
            if self._free:
                return self._free.pop()
        try:
            return self._connect()
        except BaseException:
            self._leave(None)
            raise

    def give_back(self, db: sqlite3.Connection, sound: bool) -> None:
        """Keep a connection for the next call, unless something was wrong with it."""
        if not sound:
            with suppress(sqlite3.Error):
                db.close()
        self._leave(db if sound else None)

    def _leave(self, db: sqlite3.Connection | None) -> None:
        with self._changed:
            self._used -= 1
            if db is not None:
                self._free.append(db)
            if self._closed:
                self._changed.notify_all()

    def close(self, seconds: float) -> None:
        """Wait for the calls that are under way, then close everything."""
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: self._used == 0, seconds)
            free, self._free = self._free, []
        # A log that others still use, or that finds no room, stays for the next one.
        with suppress(sqlite3.Error):
            if free:
                free[0].execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        for db in free:
            with suppress(sqlite3.Error):
                db.close()
        self.turn.close()


def _at_one_moment(db: sqlite3.Connection, ask: Callable[[sqlite3.Connection], R]) -> R:
    db.execute("BEGIN")
    try:
        return ask(db)
    finally:
        if db.in_transaction:
            db.rollback()
