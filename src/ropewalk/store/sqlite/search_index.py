"""The search index and small values beside an embedded store, in a database file of their own.

scopes   a number for each scope, its state, and the highest position that it has indexed
blocks   which blocks of positions a scope has
edited   the words of positions that were indexed before and changed since
garbage  how many rows of the index belong to no scope any more
words    the inverted index. A token is a scope's number, a block's number and a word, so that
         a search reads only what belongs to its scope and block, the newest block first
scratch  small values, and until when they live

The file may be removed at any moment, also while it is open. If it is damaged, it is thrown
away; if there can be none, what stands beside history is in the process.

The inverted index is only ever added to. The words of a position that changes are noted beside it;
stale postings are filtered on read.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias, TypeVar

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
from ropewalk.store.scratch import MemoryScratch, Scratch
from ropewalk.store.search_index import RARE, Change, MemoryTextIndex, TextIndex, Within
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
    """The database file beside a store. Its errors are logged, and never raised."""

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


_MOST_BYTES: Final = 64 * 1024 * 1024
_TIDIED_EVERY: Final = 64  # Puts, between two looks at what is over.


class SqliteScratch(Scratch):
    """Small values in the file beside the store, or in this process if there is none."""

    def __init__(self, side: SideFile) -> None:
        self._side = side
        self._memory = MemoryScratch(time.monotonic)
        self._puts = 0

    @property
    def _instead(self) -> MemoryScratch | None:
        return self._memory if self._side.unusable else None

    def get(self, key: str) -> bytes | None:
        """The value of a key, if it is there and lives."""
        if self._instead is not None:
            return self._instead.get(key)
        row = self._side.read(
            lambda db: db.execute(
                "SELECT value FROM scratch WHERE key = ? AND (until IS NULL OR until > ?)",
                (key, time.time()),
            ).fetchone(),
            None,
        )
        return None if row is None or not isinstance(row[0], bytes) else row[0]

    def put(self, key: str, value: bytes, seconds: float | None = None) -> None:
        """Keep a value, perhaps for some seconds."""
        if self._instead is not None:
            self._instead.put(key, value, seconds)
            return
        until = None if seconds is None else time.time() + seconds
        tidy = self._puts % _TIDIED_EVERY == 0
        self._puts += 1

        def work(db: sqlite3.Connection) -> None:
            db.execute(
                "INSERT OR REPLACE INTO scratch (key, value, until) VALUES (?, ?, ?)",
                (key, value, until),
            )
            if tidy:
                _tidy(db)

        self._side.write(work, None)

    def remove(self, key: str) -> None:
        """Remove a value."""
        if self._instead is not None:
            self._instead.remove(key)
            return
        self._side.write(
            lambda db: db.execute("DELETE FROM scratch WHERE key = ?", (key,)).rowcount, 0
        )

    def keys(self, prefix: str = "") -> list[str]:
        """The keys that begin so and live."""
        if self._instead is not None:
            return self._instead.keys(prefix)
        rows: list[tuple[str]] = self._side.read(
            lambda db: db.execute(
                "SELECT key FROM scratch WHERE substr(key, 1, ?) = ? "
                "AND (until IS NULL OR until > ?) ORDER BY key",
                (len(prefix), prefix, time.time()),
            ).fetchall(),
            [],
        )
        return [key for (key,) in rows]


def _tidy(db: sqlite3.Connection) -> None:
    """Remove what is over, and what was put first if it is too much."""
    db.execute("DELETE FROM scratch WHERE until <= ?", (time.time(),))
    held = db.execute("SELECT coalesce(sum(length(value)), 0) FROM scratch").fetchone()[0]
    while held > _MOST_BYTES:
        number, size = db.execute(
            "SELECT number, length(value) FROM scratch ORDER BY number LIMIT 1"
        ).fetchone()
        db.execute("DELETE FROM scratch WHERE number = ?", (number,))
        held -= size


_BLOCK_BITS: Final = 13
"""Positions are indexed in blocks, so that what is in many of them is found in the first."""

_POSITION_BITS: Final = 36
_MOST_EDITED: Final = 5000
"""So many changed positions are looked at one by one; if there are more, the scope is dropped."""

_GARBAGE: Final = 50_000
"""So many rows of dropped scopes may stay, and as many as there are living ones."""

Said: TypeAlias = tuple[int, Iterable[str]]


class _Scope(NamedTuple):
    number: int
    state: bytes
    highest: int
    rows: int


class SqliteTextIndex(TextIndex):
    """An index in the file beside the store, or in this process if there is none."""

    def __init__(self, side: SideFile) -> None:
        self._side = side
        self._memory = MemoryTextIndex()

    @property
    def _instead(self) -> MemoryTextIndex | None:
        return self._memory if self._side.unusable or not has_full_text() else None

    def state(self, scope: str) -> bytes | None:
        """What a scope was last indexed at."""
        if self._instead is not None:
            return self._instead.state(scope)
        return self._side.read(lambda db: _state_of(_scope(db, scope)), None)

    def apply(
        self, scope: str, before: bytes | None, after: bytes, changes: Sequence[Change]
    ) -> bool:
        """Index changes; False if the scope is elsewhere by now."""
        if self._instead is not None:
            return self._instead.apply(scope, before, after, changes)
        work = partial(_apply, name=scope, before=before, after=after, changes=changes)
        return self._side.write(work, False)

    def find(
        self, scope: str, state: bytes, prefixes: Sequence[str], within: Within
    ) -> list[int] | None:
        """Positions whose words begin so; None if the scope is elsewhere by now."""
        if self._instead is not None:
            return self._instead.find(scope, state, prefixes, within)
        ask = partial(_find, name=scope, state=state, prefixes=prefixes, within=within)
        return self._side.read(ask, None)

    def drop(self, scope: str) -> None:
        """Remove a scope."""
        if self._instead is not None:
            self._instead.drop(scope)
            return

        def work(db: sqlite3.Connection) -> None:
            found = _scope(db, scope)
            if found is not None:
                _forget(db, found)

        self._side.write(work, None)


def _scope(db: sqlite3.Connection, name: str) -> _Scope | None:
    row = db.execute(
        "SELECT number, state, highest, rows FROM scopes WHERE name = ?", (name,)
    ).fetchone()
    return None if row is None else _Scope(*row)


def _state_of(scope: _Scope | None) -> bytes | None:
    return None if scope is None or not isinstance(scope.state, bytes) else scope.state


def _apply(
    db: sqlite3.Connection,
    name: str,
    before: bytes | None,
    after: bytes,
    changes: Sequence[Change],
) -> bool:
    found = _scope(db, name)
    if before is None:
        if found is not None:
            _forget(db, found)
        db.execute("INSERT INTO scopes VALUES (NULL, ?, ?, -1, 0)", (name, after))
        found = _scope(db, name)
    elif _state_of(found) != before:
        return False
    assert found is not None
    said = sorted((at, some) for at, some in changes if some)
    if said and said[-1][0] >> _POSITION_BITS:
        return False
    fresh = [(at, some) for at, some in said if at > found.highest]
    edited = [(found.number, at, " ".join(some)) for at, some in said if at <= found.highest]
    db.executemany("INSERT OR REPLACE INTO edited VALUES (?, ?, ?)", edited)
    if edited and _count_edited(db, found.number) > _MOST_EDITED:
        _forget(db, found)
        return False
    _insert(db, found.number, fresh)
    highest = fresh[-1][0] if fresh else found.highest
    db.execute(
        "UPDATE scopes SET state = ?, highest = ?, rows = ? WHERE number = ?",
        (after, highest, found.rows + len(fresh), found.number),
    )
    return True


def _insert(db: sqlite3.Connection, number: int, fresh: Sequence[Said]) -> None:
    blocks = {at >> _BLOCK_BITS for at, _ in fresh}
    db.executemany(
        "INSERT OR IGNORE INTO blocks VALUES (?, ?)", [(number, block) for block in blocks]
    )
    rows = []
    for at, words in fresh:
        begin = _begin(number, at >> _BLOCK_BITS)
        rows.append((_row(number, at), " ".join([begin + word for word in words])))
    db.executemany("INSERT INTO words (rowid, tokens) VALUES (?, ?)", rows)


def _begin(number: int, block: int) -> str:
    # Hexadecimal digits, each time ended by what is none.
    return f"{number:x}g{block:x}g"


def _row(number: int, position: int) -> int:
    return number << _POSITION_BITS | position


def _count_edited(db: sqlite3.Connection, number: int) -> int:
    found: int = db.execute("SELECT count(*) FROM edited WHERE scope = ?", (number,)).fetchone()[0]
    return found


def _forget(db: sqlite3.Connection, scope: _Scope) -> None:
    """Drop a scope. Its rows in the index are garbage, of which there is some at most."""
    for table in ("edited", "blocks"):
        db.execute(f"DELETE FROM {table} WHERE scope = ?", (scope.number,))  # noqa: S608
    db.execute("DELETE FROM scopes WHERE number = ?", (scope.number,))
    db.execute("UPDATE garbage SET rows = rows + ?", (scope.rows,))
    garbage = db.execute("SELECT rows FROM garbage").fetchone()[0]
    alive = db.execute("SELECT coalesce(sum(rows), 0) FROM scopes").fetchone()[0]
    if garbage > _GARBAGE and garbage > alive:
        db.execute("INSERT INTO words (words) VALUES ('delete-all')")
        for table in ("edited", "blocks", "scopes"):
            db.execute(f"DELETE FROM {table}")  # noqa: S608
        db.execute("UPDATE garbage SET rows = 0")


def _find(
    db: sqlite3.Connection, name: str, state: bytes, prefixes: Sequence[str], within: Within
) -> list[int] | None:
    found = _scope(db, name)
    if found is None or found.state != state:
        return None
    positions = _edited_with(db, found.number, prefixes, within)
    indexed: list[int] = []
    for block in _blocks(db, found.number, within):
        if len(indexed) >= within.limit:
            break
        left = within._replace(limit=within.limit - len(indexed))
        indexed += _find_in(db, found.number, block, prefixes, left)
    positions.update(indexed)
    return sorted(positions, reverse=within.newest_first)[: within.limit]


def _blocks(db: sqlite3.Connection, number: int, within: Within) -> list[int]:
    low = 0 if within.after is None else within.after + 1 >> _BLOCK_BITS
    high = 1 << 62 if within.before is None else within.before >> _BLOCK_BITS
    order = "DESC" if within.newest_first else "ASC"
    rows = db.execute(
        "SELECT block FROM blocks WHERE scope = ? AND block BETWEEN ? AND ? "  # noqa: S608
        f"ORDER BY block {order}",
        (number, low, high),
    )
    return [block for (block,) in rows]


def _find_in(
    db: sqlite3.Connection, number: int, block: int, prefixes: Sequence[str], within: Within
) -> list[int]:
    """The positions of a block; without a look at the other prefixes if the first is rare.

    SQLite gathers all words that begin so before it gives the first position, which takes
    long for short prefixes.
    """
    if len(prefixes) > 1:
        few = _match(db, number, block, prefixes[:1], within._replace(limit=RARE))
        if len(few) < min(RARE, within.limit):
            return few
    return _match(db, number, block, prefixes, within)


def _match(
    db: sqlite3.Connection, number: int, block: int, prefixes: Sequence[str], within: Within
) -> list[int]:
    begin = _begin(number, block)
    match = " AND ".join(['"' + (begin + one).replace('"', '""') + '"*' for one in prefixes])
    low = _row(number, 0) if within.after is None else _row(number, within.after + 1)
    high = _row(number + 1, 0) if within.before is None else _row(number, within.before)
    order = "DESC" if within.newest_first else "ASC"
    rows = db.execute(
        "SELECT rowid FROM words WHERE words MATCH ? AND rowid >= ? AND rowid < ? "  # noqa: S608
        f"ORDER BY rowid {order} LIMIT ?",
        (match, low, high, within.limit),
    )
    first = _row(number, 0)
    return [row - first for (row,) in rows]


def _edited_with(
    db: sqlite3.Connection, number: int, prefixes: Sequence[str], within: Within
) -> set[int]:
    found = set()
    for at, words in db.execute("SELECT position, words FROM edited WHERE scope = ?", (number,)):
        if within.holds(at) and all(f" {one}" in f" {words}" for one in prefixes):
            found.add(at)
    return found
