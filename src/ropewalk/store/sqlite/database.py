"""A SQLite database for many threads and processes: connections, transactions, group commit.

BEGIN and COMMIT are in `Database._lead`. A connection serves one call at a time, and is not used
across a fork. Threads of one process that write at the same time share a transaction, and so one
sync: the first leads and runs the work of the threads that queue behind it, each in a savepoint of
its own. No call returns before the transaction is committed.
"""

from __future__ import annotations

import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

from ropewalk.errors import (
    Corrupt,
    FormatError,
    NotAllowed,
    RopewalkError,
    StoreClosed,
    Unavailable,
)
from ropewalk.store.folder import forbidden, from_system, store_full, too_busy
from ropewalk.store.forking import FORKS, freed_after_fork
from ropewalk.store.group import Group, Member


@contextmanager
def translated(folder: Path) -> Iterator[None]:
    """Raise what goes wrong inside, in the store of this folder, as Ropewalk's errors."""
    try:
        yield
    except sqlite3.ProgrammingError:
        raise  # A mistake of ours, which must not look like damage.
    except sqlite3.Error as error:
        raise _from_sqlite(folder, error) from error
    except UnicodeDecodeError as error:  # SQLite quotes names from a damaged file as they are.
        raise _damaged(folder, error) from error
    except OSError as error:
        raise from_system(folder, error) from error


def is_busy(error: sqlite3.Error) -> bool:
    """Whether SQLite only asks to wait for somebody else."""
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _from_sqlite(folder: Path, error: sqlite3.Error) -> RopewalkError:
    if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_SHMSIZE:
        # Memory that processes share is a file too, and this is how SQLite says that the
        # disk has no room for it. Nothing was begun then.
        return store_full(folder, str(error))
    match _code(error):
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return Unavailable(f"the store in {folder} is busy: {error}. Try again.")
        case sqlite3.SQLITE_FULL:
            return store_full(folder, str(error))
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            return forbidden(folder, str(error))
        case sqlite3.SQLITE_NOTADB:
            return FormatError(
                f"the store in {folder} has a database that is none: {error}. "
                "Restore it from a copy, or choose another folder."
            )
        case sqlite3.SQLITE_CANTOPEN if not os.access(folder, os.W_OK | os.X_OK):
            return forbidden(folder, str(error))
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_IOERR | sqlite3.SQLITE_NOMEM:
            return Unavailable(
                f"the store in {folder} cannot be reached now: {error}. If this was a commit, "
                "send it again with the same write id."
            )
        case _:
            return _damaged(folder, error)


def _damaged(folder: Path, error: Exception) -> Corrupt:
    return Corrupt(
        f"the database of the store in {folder} is damaged: {error}. Restore it from a copy."
    )


def _code(error: sqlite3.Error) -> int:
    # The low byte is the kind of error; the rest says more about it.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


R = TypeVar("R")
Work: TypeAlias = Callable[[sqlite3.Connection], object]

DATABASE: Final = "store.db"
CHECKPOINT_BYTES: Final = 400 * 1024
"""The size at which the write-ahead log is checkpointed. Small, because overwriting a log syncs
faster than growing it, and because the log counts towards the size of the store."""
MOST_BYTES: Final = 8 * 1024 * 1024

_LARGEST_LOG: Final = 2 * 1024 * 1024  # One that a large commit made longer is cut.
_CACHE_KILOBYTES: Final = 8192
_SYNCHRONOUS: Final = {"full": "FULL", "relaxed": "NORMAL"}
_THROUGH: Final = "PRAGMA synchronous = FULL"
_SHORTEST, _LONGEST = 0.0002, 0.004

OPENING = freed_after_fork(threading.Lock())
"""Held while a connection opens its file, and while somebody else reads that file: to close it
once more would release the locks that SQLite holds on it for the whole process."""


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
        before_writing: Callable[[], None] = lambda: None,
    ) -> None:
        """`before_writing` is called before a process writes after SQLite may have recovered."""
        self.folder, self.file = folder, folder / name
        self._busy_seconds = busy_seconds
        self._usual = f"PRAGMA synchronous = {_SYNCHRONOUS[durability]}"
        self._vfs = "" if vfs is None else f"&vfs={vfs}"
        self._before_writing = before_writing
        self._read_only = False
        self._closed = False
        self._identity: tuple[int, int] | None = None
        """Which file it must be; None if it may vanish."""
        self._open: list[sqlite3.Connection] = []
        self._processes: dict[int, _Process] = {}
        self.group = Group(
            self._lead, MOST_BYTES, busy_seconds, lambda: too_busy(folder, busy_seconds)
        )
        FORKS.concern(self)

    # Reading.

    def read(self, ask: Callable[[sqlite3.Connection], R], *, once: bool = False) -> R:
        """Run `ask` on one snapshot of the database, without waiting for writers.

        With `once` it is a single statement, which needs no transaction.
        """
        process = self._here()
        sound, db = False, self._take(process)
        try:
            try:
                found = ask(db) if once else at_one_moment(db, ask)
            except sqlite3.OperationalError as error:
                if not is_busy(error):
                    raise
                # A reader waits only while a database is recovered after a crash, or closed.
                found = self._retried(lambda: ask(db) if once else at_one_moment(db, ask))
            sound = True
        except (sqlite3.Error, UnicodeDecodeError, OSError):
            with translated(self.folder):
                raise
        finally:
            self._give_back(process, db, sound)
        return found

    # Writing.

    def write(
        self, work: Callable[[sqlite3.Connection], R], size: int = 0, *, through: bool = False
    ) -> R:
        """Run `work` in a write transaction, possibly one shared with other threads.

        If it raises, its changes are rolled back. It may run again if SQLite rolled back the
        shared transaction. Raises `Unavailable` if others hold the write lock for too long.
        With `through` the commit survives a power loss at every durability: for a caller that
        goes on to do something outside the database that cannot be undone.
        """
        member: Member[Work] = Member(work, size, alone=through and self._usual != _THROUGH)
        try:
            done: R = self.group.run(member)
        except (sqlite3.Error, UnicodeDecodeError, OSError):
            with translated(self.folder):
                raise
        return done

    def _lead(  # noqa: C901, PLR0912 - one story, from BEGIN to COMMIT
        self, leader: Member[Work]
    ) -> bool:
        """Run the work of a leader and its followers; True if the leader's must run again."""
        process = self._processes.get(self.group.process) or self._here()
        sound, db = False, self._take(process, to_write=True)
        group, others = self.group, list[Member[Work]]()
        try:
            if leader.alone:
                db.execute(_THROUGH)
            try:
                db.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                self._begin_later(db, error)
            # An interrupt comes to the main thread, and must not hit the work of another.
            if group.waiting and threading.current_thread() is not threading.main_thread():
                others = group.take_along(leader)
            if others:
                members = [leader, *others]
                for at, member in enumerate(members):
                    _run(db, member)
                    if not db.in_transaction:  # SQLite took it all back.
                        undone = members[:at] + members[at + 1 :]
                        group.put_back([one for one in undone if one is not leader])
                        others = [one for one in others if one not in undone]
                        return leader in undone
            else:
                leader.answer = leader.work(db)
            self._expect_file()
            db.execute("COMMIT")
            if leader.alone:
                db.execute(self._usual)
            sound = True
            for one in (leader, *others):
                sound = sound and not isinstance(one.error, sqlite3.Error)
        except sqlite3.Error as error:
            if not others:
                raise
            for one in (leader, *others):
                one.error = one.error or error
        except BaseException:
            sound = not leader.alone
            if db.in_transaction:
                db.rollback()
                group.put_back(others)
                others = []
            raise
        finally:
            self._give_back(process, db, sound)
            if others:
                group.answer(others)
        return False

    def _begin_later(self, db: sqlite3.Connection, error: sqlite3.OperationalError) -> None:
        """Retry BEGIN IMMEDIATE with backoff until other processes release the write lock."""
        deadline, wait = time.monotonic() + self._busy_seconds, _SHORTEST
        while True:
            if not is_busy(error):
                raise error
            if time.monotonic() > deadline:
                raise too_busy(self.folder, self._busy_seconds) from error
            time.sleep(wait * random.uniform(0.5, 1.5))  # noqa: S311
            wait = min(wait * 1.5, _LONGEST)
            try:
                db.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as again:
                error = again

    # Making and opening.

    def create(
        self, is_new: Callable[[sqlite3.Connection], bool], before_tables: Iterable[str]
    ) -> None:
        """Make the file if there is none, and see that it is one that several may use."""
        with translated(self.folder), self._here().inside():
            db = self._connect("rwc")
            try:
                if self._retried(lambda: at_one_moment(db, is_new)):
                    for pragma in before_tables:
                        self._retried(lambda pragma=pragma: db.execute(pragma))  # type: ignore[misc]
                mode = self._retried(lambda: db.execute("PRAGMA journal_mode = WAL").fetchone()[0])
            finally:
                self._disconnect(db)
        if mode != "wal":
            raise NotAllowed(
                f"the folder {self.folder} cannot hold a store: its file system gives several "
                "processes no shared memory. Choose a folder on a local disk."
            )

    def open_read_only(self) -> None:
        """Use the file as it is, on a medium where nobody can write."""
        self._read_only = True

    def keep_to_file(self) -> None:
        """Write from now on only if that reaches the file that is there now."""
        self._identity = _identity(self.file)

    def _expect_file(self) -> None:
        """What is written to a file that has no name any more would be lost."""
        if self._identity is None:
            return
        try:
            found = os.stat(self.file)
        except OSError:
            raise Unavailable(
                f"the file {self.file} is gone, which was there when it was opened. Nothing was "
                "written: put it back, or open the store anew."
            ) from None
        if (found.st_dev, found.st_ino) != self._identity:
            raise Corrupt(
                f"the file {self.file} is another one than when it was opened. Nothing was "
                "written: open the store anew to use what is there now."
            )

    # Connections.

    def _connect(self, mode: str = "rw") -> sqlite3.Connection:
        if self._read_only:
            mode = "ro"
            if not self.file.with_name(self.file.name + "-wal").exists():
                mode = "ro&immutable=1"
        with OPENING:
            db = sqlite3.connect(
                f"{self.file.as_uri()}?mode={mode}{self._vfs}",
                uri=True,
                timeout=0,  # We wait ourselves.
                isolation_level=None,
                check_same_thread=False,
                cached_statements=256,
            )
        self._open.append(db)
        try:
            for pragma in (
                self._usual,
                f"PRAGMA journal_size_limit = {_LARGEST_LOG}",
                f"PRAGMA cache_size = -{_CACHE_KILOBYTES}",
                "PRAGMA secure_delete = OFF",
            ):
                self._retried(lambda pragma=pragma: db.execute(pragma))  # type: ignore[misc]
            size = self._retried(lambda: db.execute("PRAGMA page_size").fetchone()[0])
            db.execute(f"PRAGMA wal_autocheckpoint = {max(CHECKPOINT_BYTES // size, 16)}")
        except BaseException:
            self._disconnect(db)
            raise
        return db

    def _disconnect(self, db: sqlite3.Connection) -> None:
        try:
            db.close()
        finally:
            self._open.remove(db)

    def _take(self, process: _Process, *, to_write: bool = False) -> sqlite3.Connection:
        """A connection for one call: the writer's own, or any other."""
        if self._closed:
            raise StoreClosed(f"the store in {self.folder} was closed")
        with process.lock:
            process.used += 1
            if to_write:
                db, process.writer = process.writer, None
            else:
                db = process.free.pop() if process.free else None
        try:
            if db is None:
                db = self._connect()
            if to_write and not process.prepared:
                self._before_writing()
                process.prepared = True
        except BaseException as error:
            process.leave()
            if isinstance(error, sqlite3.Error | UnicodeDecodeError | OSError):
                with translated(self.folder):
                    raise
            raise
        if to_write:
            process.writing = db
        return db

    def _give_back(self, process: _Process, db: sqlite3.Connection, sound: bool) -> None:
        """Keep a connection for the next call, unless something was wrong with it."""
        if not sound:
            process.prepared = False  # It may be the last one, and the next recovers the log.
            with suppress(sqlite3.Error):
                self._disconnect(db)
        with process.lock:
            process.used -= 1
            if sound:
                if db is process.writing:
                    process.writer = db
                else:
                    process.free.append(db)
            if db is process.writing:
                process.writing = None
            if process.awaited:
                process.changed.notify_all()

    def _retried(self, step: Callable[[], R]) -> R:
        """Do a step that SQLite refuses while others recover or close the database."""
        deadline, wait = 0.0, _SHORTEST
        while True:
            try:
                return step()
            except sqlite3.OperationalError as error:
                now = time.monotonic()
                deadline = deadline or now + self._busy_seconds
                if not is_busy(error) or now > deadline:
                    raise
            time.sleep(wait * random.uniform(0.5, 1.5))  # noqa: S311
            wait = min(wait * 1.5, 0.01)

    def close(self) -> None:
        """Wait for those who are inside, bring the log into the database, and let go."""
        self._closed = True
        process = self._here()
        with process.changed:
            process.awaited = True
            process.changed.wait_for(lambda: process.used == 0, self._busy_seconds)
            process.awaited = False
            free = process.free + ([] if process.writer is None else [process.writer])
            process.free, process.writer = [], None
        with process.inside():
            # A log that others still use, or that finds no room, stays for the next one.
            with suppress(sqlite3.Error):
                if free and not self._read_only:
                    free[-1].execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            for db in free:
                with suppress(sqlite3.Error):
                    self._disconnect(db)

    # Forks.

    def _here(self) -> _Process:
        found = self._processes.get(os.getpid())
        if found is None:
            with FORKS.lock:
                found = self._processes.setdefault(os.getpid(), _Process())
        return found

    def gate(self) -> _Process | None:
        """What a fork of this process waits at; None if nobody here used the database yet."""
        return self._processes.get(os.getpid())

    def abandon(self) -> None:
        """In the child of a fork: leak the parent's connections, and start with none.

        Closing one, even by garbage collection, could change the log under the parent: it would
        roll back a transaction that was open at the fork, in memory that both processes share.
        """
        if self._open:
            import ctypes  # Slow to import, and needed only here.

            for db in self._open:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(db))
        self._open = []
        self._processes = {}


class _Process:
    """The connections of one process, and the gate that a fork waits at."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)
        self.free: list[sqlite3.Connection] = []
        self.writer: sqlite3.Connection | None = None
        """The connection that writes, while nobody does."""
        self.writing: sqlite3.Connection | None = None
        self.prepared = False
        """Whether `before_writing` was called since SQLite may last have recovered the log."""
        self.used = 0
        self.awaited = False

    def leave(self) -> None:
        """End a call that a fork has to wait for."""
        with self.changed:
            self.used -= 1
            if self.awaited:
                self.changed.notify_all()

    @contextmanager
    def inside(self) -> Iterator[None]:
        """A call that a fork has to wait for."""
        with self.changed:
            self.used += 1
        try:
            yield
        finally:
            self.leave()

    def halt(self, deadline: float) -> bool:
        """Let nobody in, and wait until then for those inside; whether `resume` is due."""
        if not self.changed.acquire(timeout=max(deadline - time.monotonic(), 0)):
            return False  # Held by the thread that forks, in a signal's handler.
        self.awaited = True
        self.changed.wait_for(lambda: self.used == 0, max(deadline - time.monotonic(), 0))
        self.awaited = False
        return True

    def resume(self) -> None:
        """Let others in again."""
        self.changed.release()


def _run(db: sqlite3.Connection, member: Member[Work]) -> None:
    db.execute("SAVEPOINT member")
    try:
        member.answer = member.work(db)
    except Exception as error:  # noqa: BLE001 - it is raised where the work came from
        member.error = error
        if db.in_transaction:
            db.execute("ROLLBACK TO member")
    if db.in_transaction:
        db.execute("RELEASE member")


def at_one_moment(db: sqlite3.Connection, ask: Callable[[sqlite3.Connection], R]) -> R:
    """What `ask` finds in one transaction."""
    db.execute("BEGIN")
    try:
        return ask(db)
    finally:
        if db.in_transaction:
            db.rollback()


def _identity(file: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino
