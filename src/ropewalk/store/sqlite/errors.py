"""The one place where errors of SQLite become Ropewalk's."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ropewalk.errors import Corrupt, FormatError, RopewalkError, Unavailable
from ropewalk.store.folder import forbidden, from_system, store_full


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
