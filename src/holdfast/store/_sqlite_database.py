"""Connections to one database, from many threads and processes: reading and writing.

A connection serves one call at a time, and stays in the process that opened it.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from holdfast.errors import NotAllowed, StoreClosed
from holdfast.store._sqlite_errors import is_busy, translated
from holdfast.store._sqlite_group import Group, Member, Transaction, run_members, wake
from holdfast.store._sqlite_index import Tails
from holdfast.store._system_errors import too_busy
from holdfast.store._turns import Patience, Turn

R = TypeVar("R")

DATABASE = "store.db"
TURN = "store.turn"

# A log that is written over is synced faster than one that grows, so it begins anew early.
_CHECKPOINT_PAGES = 4000
_LARGEST_LOG = 16 * 1024 * 1024
_CACHE_KILOBYTES = 8192
_SYNCHRONOUS = {"full": "FULL", "relaxed": "NORMAL"}
_THROUGH = "PRAGMA synchronous = FULL"

_databases: weakref.WeakSet[Database] = weakref.WeakSet()


class Database:
    """A database in a folder. Safe to share between threads and to carry over a fork."""

    def __init__(
        self,
        folder: Path,
        durability: str,
        busy_seconds: float,
        vfs: str | None = None,
        *,
        name: str = DATABASE,
        turn: str = TURN,
    ) -> None:
        self.folder = folder
        self.file = folder / name
        self._turn = folder / turn
        self._vfs = "" if vfs is None else f"&vfs={vfs}"
        self._busy_seconds = busy_seconds
        self._usual = f"PRAGMA synchronous = {_SYNCHRONOUS[durability]}"
        self._pragmas = (
            self._usual,
            f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}",
            f"PRAGMA journal_size_limit = {_LARGEST_LOG}",
            f"PRAGMA cache_size = -{_CACHE_KILOBYTES}",
            "PRAGMA secure_delete = OFF",
        )
        self._closed = False
        self._opened: list[sqlite3.Connection] = []
        self._processes: dict[int, _Process] = {}
        _databases.add(self)

    def read(self, ask: Callable[[sqlite3.Connection], R]) -> R:
        """What `ask` finds, all of it at one moment. Nobody is waited for."""
        try:
            return self._retried(lambda db: _at_one_moment(db, ask))
        except (sqlite3.Error, UnicodeDecodeError, OSError):
            with translated(self.folder):
                raise

    def read_once(self, ask: Callable[[sqlite3.Connection], R]) -> R:
        """The same for an `ask` of one statement, which is of one moment by itself."""
        try:
            return self._retried(ask)
        except (sqlite3.Error, UnicodeDecodeError, OSError):
            with translated(self.folder):
                raise

    def write(self, work: Callable[[sqlite3.Connection], R], size: int = 0) -> R:
        """Do work in one transaction, after those who came before.

        What it raises takes everything back. Raises `Unavailable` when others write for
        too long. The work may be done again, if SQLite took it back.
        """
        return self.transact(lambda transaction: work(transaction.db), size)

    def transact(
        self, work: Callable[[Transaction], R], size: int = 0, *, through: bool = False
    ) -> R:
        """The same for work that shares something with others in its transaction.

        With `through` it survives a power loss when it returns, at every durability: for
        what something outside the database is done upon that cannot be taken back.
        """
        try:
            process = self._here()
            patience = Patience(self._busy_seconds, first=0.0002, last=0.002)
            member = Member(work, size, alone=through and self._usual != _THROUGH)
            try:
                if not process.group.enter(member, self._busy_seconds):
                    raise too_busy(self.folder, self._busy_seconds)
                while member.leads and self._lead(process, patience, member):
                    pass
            finally:
                if member.leads:
                    process.group.leave()
            if member.error is not None:
                raise member.error
        except (sqlite3.Error, UnicodeDecodeError, OSError):
            with translated(self.folder):
                raise
        done: R = member.result
        return done

    def create(
        self, is_new: Callable[[sqlite3.Connection], bool], before_tables: Iterable[str]
    ) -> None:
        """Make the file if there is none, and see that it is one that several may use."""
        with translated(self.folder):
            db = self._connect("rwc")
            try:
                if self._waiting_for_others(lambda: _at_one_moment(db, is_new)):
                    for pragma in before_tables:
                        self._waiting_for_others(partial(db.execute, pragma))
                mode = self._waiting_for_others(
                    lambda: db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
                )
            finally:
                self._disconnect(db)
        if mode != "wal":
            raise NotAllowed(
                f"the folder {self.folder} cannot hold a store: its file system gives several "
                "processes no shared memory. Choose a folder on a local disk."
            )

    def tails(self) -> Tails:
        """What this process knows of the log's tail."""
        return self._here().tails

    def close(self) -> None:
        """Wait for those who are inside, bring the log into the database, and let go."""
        self._closed = True
        self._here().close(self._busy_seconds)

    def _lead(self, process: _Process, patience: Patience, leader: Member) -> bool:
        """Do a member's work and that of those behind it; whether it must be done again."""
        db = self._take(process, to_write=True)
        sound = False
        others: list[Member] = []
        try:
            if leader.alone:
                db.execute(_THROUGH)
            process.turn.take(patience.remaining)
            try:
                self._begin(db, patience)
            finally:
                process.turn.pass_on()
            others = process.group.take_along(leader)
            transaction = Transaction(db, grouped=bool(others))
            undone = run_members(transaction, leader, others)
            if undone:
                process.group.put_back([one for one in undone if one is not leader])
                others = [one for one in others if one not in undone]
                return leader in undone
            db.execute("COMMIT")
            if transaction.shared is not None:
                transaction.shared.landed()
            if leader.alone:
                db.execute(self._usual)
            sound = not any(isinstance(one.error, sqlite3.Error) for one in (leader, *others))
        except sqlite3.Error as error:
            if not others:
                raise
            for one in (leader, *others):
                one.error = one.error or error
        except BaseException:
            sound = not leader.alone
            if db.in_transaction:
                db.rollback()
                process.group.put_back(others)
                others = []
            raise
        finally:
            process.give_back(db, sound)
            for one in others:
                wake(one)
        return False

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
            found = self._processes.setdefault(pid, _Process(self))
        return found

    def _take(self, process: _Process, *, to_write: bool = False) -> sqlite3.Connection:
        if self._closed:
            raise StoreClosed(f"the store in {self.folder} was closed")
        return process.take(to_write)

    def _connect(self, mode: str = "rw") -> sqlite3.Connection:
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
                self._waiting_for_others(partial(db.execute, pragma))
        except BaseException:
            self._disconnect(db)
            raise
        return db

    def _disconnect(self, db: sqlite3.Connection) -> None:
        try:
            db.close()
        finally:
            self._opened.remove(db)

    def _abandon(self) -> None:
        """In a child: let what the parent has open be, whatever becomes of this process.

        To close it, even by ending, could change the log under the parent: a transaction
        that was open at the fork would be taken back in memory that both share.
        """
        if self._opened:
            import ctypes  # Slow to import, and needed only here.
        for db in self._opened:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(db))
        for parents in self._processes.values():
            parents.turn.close()  # Else this process would go on holding it.
        self._opened, self._processes = [], {}


class _Process:
    """What one process has open."""

    def __init__(self, database: Database) -> None:
        self.group = Group()
        self.tails = Tails()
        self.turn = Turn(database._turn)
        self._database = database
        self._free: list[sqlite3.Connection] = []
        self._writer: sqlite3.Connection | None = None
        self._used = 0
        self._closed = False
        self._changed = threading.Condition(threading.Lock())

    def take(self, to_write: bool) -> sqlite3.Connection:
        """A connection for one call. One that writes is the one that wrote before, if it can."""
        with self._changed:
            self._used += 1
            if self._free:
                db = self._choose(to_write)
                if to_write:
                    self._writer = db
                return db
        try:
            db = self._database._connect()
        except BaseException:
            self._leave(None)
            raise
        if to_write:
            self._writer = db
        return db

    def _choose(self, to_write: bool) -> sqlite3.Connection:
        free = self._free
        if free[-1] is self._writer:
            return free.pop() if to_write or len(free) == 1 else free.pop(0)
        if to_write and self._writer in free:
            free.remove(self._writer)
            return self._writer
        return free.pop()

    def give_back(self, db: sqlite3.Connection, sound: bool) -> None:
        """Keep a connection for the next call, unless something was wrong with it."""
        if not sound:
            with suppress(sqlite3.Error):
                self._database._disconnect(db)
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
                self._database._disconnect(db)
        self.turn.close()


def _at_one_moment(db: sqlite3.Connection, ask: Callable[[sqlite3.Connection], R]) -> R:
    db.execute("BEGIN")
    try:
        return ask(db)
    finally:
        if db.in_transaction:
            db.rollback()


def _abandon_all() -> None:
    for database in list(_databases):
        database._abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)
