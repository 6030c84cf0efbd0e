"""The index of words beside an embedded store; see `side` for its tables.

The inverted index is only ever added to. The words of a position that changes are noted
beside it; what a position no longer says is found in vain.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from ropewalk.store.search_index import RARE, Change, MemoryTextIndex, TextIndex, Within
from ropewalk.store.sqlite.side import SideFile, has_full_text

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
