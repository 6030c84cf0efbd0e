"""One database that many threads and processes use: reading, and writing in turn."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TypeVar

from ropewalk.errors import Corrupt, NotAllowed, StoreClosed, Unavailable
from ropewalk.store._sqlite_connections import Connections, Connector
from ropewalk.store._sqlite_errors import is_busy, translated
from ropewalk.store._sqlite_forks import FORKS
from ropewalk.store._sqlite_group import Group, Member, Transaction, run_members, wake
from ropewalk.store._sqlite_index import Tails
from ropewalk.store._system_errors import too_busy
from ropewalk.store._turns import Patience, Turn

R = TypeVar("R")

DATABASE = "store.db"
TURN = "store.turn"

_SYNCHRONOUS = {"full": "FULL", "relaxed": "NORMAL"}
_THROUGH = "PRAGMA synchronous = FULL"


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
        before_writing: Callable[[], None] = lambda: None,
    ) -> None:
        """`before_writing` is called before a process writes after SQLite may have recovered."""
        self.folder = folder
        self.file = folder / name
        self._turn = folder / turn
        self._busy_seconds = busy_seconds
        self._usual = f"PRAGMA synchronous = {_SYNCHRONOUS[durability]}"
        self._connector = Connector(self.file, vfs, self._usual, busy_seconds)
        self._before_writing = before_writing
        self._closed = False
        self._place: tuple[int, int] | None = None
        """Which file it must be; None if it may vanish."""
        self._processes: dict[int, _Process] = {}
        FORKS.concern(self)

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
        wait_for_others = self._connector.wait_for_others
        with translated(self.folder), self._here().connections.inside():
            db = self._connector.connect("rwc")
            try:
                if wait_for_others(lambda: _at_one_moment(db, is_new)):
                    for pragma in before_tables:
                        wait_for_others(partial(db.execute, pragma))
                mode = wait_for_others(
                    lambda: db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
                )
            finally:
                self._connector.disconnect(db)
        if mode != "wal":
            raise NotAllowed(
                f"the folder {self.folder} cannot hold a store: its file system gives several "
                "processes no shared memory. Choose a folder on a local disk."
            )

    def keep_to_file(self) -> None:
        """Write from now on only if that reaches the file that is there now."""
        self._place = _place_of(self.file)

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
            self._expect_file()
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
            process.connections.give_back(db, sound)
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

    def _expect_file(self) -> None:
        """What is written to a file that has no name any more would be lost."""
        place = _place_of(self.file)
        if self._place is None or place == self._place:
            return
        if place is None:
            raise Unavailable(
                f"the file {self.file} is gone, which was there when it was opened. Nothing was "
                "written: put it back, or open the store anew."
            )
        raise Corrupt(
            f"the file {self.file} is another one than when it was opened. Nothing was written: "
            "open the store anew to use what is there now."
        )

    def _retried(self, ask: Callable[[sqlite3.Connection], R]) -> R:
        """A reader waits only while a database is recovered after a crash, or closed."""
        process = self._here()
        db = self._take(process)
        sound = False
        try:
            found = self._connector.wait_for_others(lambda: ask(db))
            sound = True
            return found
        finally:
            process.connections.give_back(db, sound)

    def _here(self) -> _Process:
        pid = os.getpid()
        found = self._processes.get(pid)
        if found is None:
            with FORKS.lock:
                process = _Process(self._connector, self._turn, self._before_writing)
                found = self._processes.setdefault(pid, process)
        return found

    def _take(self, process: _Process, *, to_write: bool = False) -> sqlite3.Connection:
        if self._closed:
            raise StoreClosed(f"the store in {self.folder} was closed")
        return process.connections.take(to_write)

    def gate(self) -> Connections | None:
        """What a fork of this process waits at; None if nobody here used the database yet."""
        process = self._processes.get(os.getpid())
        return None if process is None else process.connections

    def abandon(self) -> None:
        """In a child: let what the parent has open be, and begin anew."""
        self._connector.abandon()
        for parents in self._processes.values():
            parents.turn.close()  # Else this process would go on holding it.
        self._processes = {}


class _Process:
    """What one process has of a database."""

    def __init__(
        self, connector: Connector, turn: Path, before_writing: Callable[[], None]
    ) -> None:
        self.connections = Connections(connector, before_writing)
        self.group = Group()
        self.tails = Tails()
        self.turn = Turn(turn)

    def close(self, seconds: float) -> None:
        """Wait for the calls that are under way, then let go of everything."""
        self.connections.close(seconds)
        self.turn.close()


def _place_of(file: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _at_one_moment(db: sqlite3.Connection, ask: Callable[[sqlite3.Connection], R]) -> R:
    db.execute("BEGIN")
    try:
        return ask(db)
    finally:
        if db.in_transaction:
            db.rollback()
