"""The database file beside an embedded store, for what may be lost.

scopes   a number for each scope, its state, and the highest position that it has indexed
blocks   which blocks of positions a scope has
edited   the words of positions that were indexed before and changed since
garbage  how many rows of the index belong to no scope any more
words    the inverted index. A token is a scope's number, a block's number and a word, so that
         a search reads only what belongs to its scope and block, the newest block first
scratch  small values, and until when they live

The file may be removed at any moment, also while it is open. If it is damaged, it is thrown
away; if there can be none, what stands beside history is in the process.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final, TypeVar

from ropewalk.errors import (
    Corrupt,
    FormatError,
    Full,
    NewerFormat,
    NotAllowed,
    RopewalkError,
    StoreClosed,
    Unavailable,
)
from ropewalk.store.forking import freed_after_fork
from ropewalk.store.sqlite.database import Database

R = TypeVar("R")

FILE = "aside.db"

_APPLICATION_ID: Final = 0x52574153  # "RWAS", in the file's own header.
_LAYOUT: Final = 1
_BUSY_SECONDS: Final = 2.0  # For longer, it is better to go without.
_MOST_DAMAGED: Final = 3  # Files that are thrown away before we go without.

_TABLES: Final = """
CREATE TABLE scopes (
    number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, state BLOB NOT NULL,
    highest INTEGER NOT NULL, rows INTEGER NOT NULL
);
CREATE TABLE blocks (scope INTEGER, block INTEGER, PRIMARY KEY (scope, block)) WITHOUT ROWID;
CREATE TABLE edited (
    scope INTEGER, position INTEGER, words TEXT NOT NULL, PRIMARY KEY (scope, position)
) WITHOUT ROWID;
CREATE TABLE garbage (rows INTEGER NOT NULL);
INSERT INTO garbage VALUES (0);
CREATE TABLE scratch (
    number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, value BLOB NOT NULL, until REAL
);
"""

# Nothing but the inverted index: no texts, no lengths, no positions inside a text. What is not
# ASCII is part of a word for this tokenizer, so words come through as they are.
_WORDS: Final = (
    "CREATE VIRTUAL TABLE words USING fts5("
    "tokens, content='', columnsize=0, detail=none, tokenize='ascii')"
)

_log = logging.getLogger("ropewalk.store")


@cache
def has_full_text() -> bool:
    """Whether this SQLite can keep an index of words."""
    db = sqlite3.connect(":memory:")
    try:
        db.execute(_WORDS)
    except sqlite3.Error:
        return False
    finally:
        db.close()
    return True


class SideFile:
    """The database beside a store. Whatever is wrong with it, nobody hears of it but the log."""

    def __init__(self, folder: Path, vfs: str | None) -> None:
        self._folder = folder
        self._vfs = vfs
        self._lock = freed_after_fork(threading.Lock())
        self._opened: Database | None = None
        self._damaged = 0
        self._closed = False
        self.unusable = False
        """Whether there can be no such file."""

    def read(self, ask: Callable[[sqlite3.Connection], R], otherwise: R) -> R:
        """What is found in the file at one moment, or `otherwise` if it cannot be asked."""
        return self._tried(lambda database: database.read(ask), otherwise)

    def write(self, work: Callable[[sqlite3.Connection], R], otherwise: R) -> R:
        """Do work in one transaction, or none of it: then this gives `otherwise`."""
        return self._tried(lambda database: database.write(work), otherwise)

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._closed = True
            if self._opened is not None:
                self._opened.close()

    def _tried(self, step: Callable[[Database], R], otherwise: R) -> R:
        database: Database | None = None
        try:
            database = self._open()
            return otherwise if database is None else step(database)
        except StoreClosed:
            if self._closed:
                raise
            return otherwise  # The file was thrown away while we asked it.
        except (Unavailable, Full) as error:
            _log.info("the search index in %s cannot be used now: %s", self._folder, error)
        except (NewerFormat, NotAllowed) as error:
            self._give_up(error)
        except Corrupt as error:
            self._throw_away(database, error)
        return otherwise

    def _open(self) -> Database | None:
        found = self._opened
        if found is not None and not self._closed:
            return found
        with self._lock:
            if self._closed:
                raise StoreClosed(f"the store in {self._folder} was closed")
            if self._opened is None and not self.unusable:
                made = Database(self._folder, "relaxed", _BUSY_SECONDS, self._vfs, name=FILE)
                try:
                    made.create(_is_new, ())
                    if made.read(_is_new):
                        made.write(_create)
                except BaseException as error:
                    made.close()
                    if isinstance(error, Corrupt):
                        self._remove(error)
                    raise
                self._opened = made
            return self._opened

    def _give_up(self, error: RopewalkError) -> None:
        self.unusable = True
        _log.warning(
            "%s cannot be beside the store in %s, so its search index and state cache are only "
            "in this process: %s",
            FILE,
            self._folder,
            error,
        )

    def _throw_away(self, database: Database | None, error: Corrupt) -> None:
        with self._lock:
            if database is None or self._opened is not database:
                return  # Somebody else did so.
            self._opened = None
            database.close()
            self._remove(error)

    def _remove(self, error: Corrupt) -> None:
        self._damaged += 1
        _log.warning(
            "%s in %s is damaged and begins anew; nothing is lost but time: %s",
            FILE,
            self._folder,
            error,
        )
        try:
            for end in ("", "-wal", "-shm"):
                (self._folder / (FILE + end)).unlink(missing_ok=True)
        except OSError as failed:
            self._give_up(NotAllowed(str(failed)))
        if self._damaged >= _MOST_DAMAGED:
            self._give_up(error)


def _is_new(db: sqlite3.Connection) -> bool:
    application, layout, tables = (
        db.execute(statement).fetchone()[0]
        for statement in (
            "PRAGMA application_id",
            "PRAGMA user_version",
            "SELECT count(*) FROM sqlite_master",
        )
    )
    if application == _APPLICATION_ID:
        if layout > _LAYOUT:
            raise NewerFormat(f"{FILE} was made by a newer Ropewalk")
        return False
    if application or tables:
        raise FormatError(f"{FILE} is something else")
    return True


def _create(db: sqlite3.Connection) -> None:
    if not _is_new(db):
        return
    for statement in _TABLES.split(";\n"):
        db.execute(statement)
    if has_full_text():
        db.execute(_WORDS)
    db.execute(f"PRAGMA user_version = {_LAYOUT}")
    db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
