"""Rows of an embedded store: how they are found and checked. Inside a transaction of the caller."""

from __future__ import annotations

import sqlite3
from itertools import chain
from typing import Final

from ropewalk.errors import Corrupt
from ropewalk.store.log import Row
from ropewalk.store.model import LeaseRecord
from ropewalk.store.record import GROUP
from ropewalk.store.segment import Packed
from ropewalk.store.sqlite.commit import (
    MARKS,
    damaged_space,
    expect_ref,
    expect_unknown,
    find_end,
    mark,
    probes,
)
from ropewalk.store.sqlite.schema import LAST, SEQUENCE_BITS
from ropewalk.tree.objects import ObjectId

AFTER_NAMES: Final = "\x7f"  # Greater than every character of a name.


def prefix(id: ObjectId) -> int:
    """The number by which a commit is found; several may share it."""
    return int.from_bytes(id[:8], "big", signed=True)


# Spaces and refs.


def number_of(db: sqlite3.Connection, space: str) -> int | None:
    """The number of a space, if it has one."""
    row = db.execute("SELECT number, mark FROM spaces WHERE name = ?", (space,)).fetchone()
    if row is None:
        expect_unknown(db, space)
        return None
    number: int = row[0]
    if row[1] != mark(number, space):
        raise damaged_space(space)
    return number


def list_spaces(db: sqlite3.Connection, prefix: str) -> list[str]:
    """The spaces that have something and whose names begin so, sorted.

    Raises `Corrupt` for a name that is not as it was written and that may have begun so.
    """
    between = (prefix, prefix + AFTER_NAMES)
    named = db.execute(
        "SELECT number, name, mark FROM spaces WHERE name >= ? AND name < ? ORDER BY name", between
    ).fetchall()
    others = db.execute(
        "SELECT number, name, mark FROM spaces "
        "WHERE probe BETWEEN ? AND ? AND (name >= ? AND name < ?) IS NOT TRUE",
        (*probes(prefix), *between),
    )
    for number, name, marked in chain(named, others):
        if marked != mark(number, name):
            raise damaged_space(number)
    found: list[str] = []
    for number, name, _ in named:
        low, high = number << SEQUENCE_BITS, number << SEQUENCE_BITS | LAST
        used = db.execute(
            "SELECT EXISTS (SELECT 1 FROM tail WHERE key BETWEEN ? AND ?) OR "
            "EXISTS (SELECT 1 FROM segments WHERE key BETWEEN ? AND ?) OR "
            "EXISTS (SELECT 1 FROM refs WHERE space = ?)",
            (low, high, low, high, number),
        ).fetchone()[0]
        if used:
            found.append(name)
    return found


def expect_refs(db: sqlite3.Connection, space: str, number: int) -> list[tuple[str, ObjectId, int]]:
    """All refs of a space; raises `Corrupt` unless they are as the last record left them."""
    rows = db.execute(
        "SELECT name, target, sequence, mark FROM refs WHERE space = ? ORDER BY name", (number,)
    ).fetchall()
    row = db.execute(
        "SELECT key, refs FROM tail WHERE key BETWEEN ? AND ? ORDER BY key DESC LIMIT 1",
        (number << SEQUENCE_BITS, number << SEQUENCE_BITS | LAST),
    ).fetchone()
    last, digest = find_end(db, number, *(row or (None, None)))
    for name, target, sequence, marked in rows:
        expect_ref(space, number, last, name, target, sequence, marked)
    if sum(row[3] for row in rows) % MARKS != digest:
        raise Corrupt(
            f"the refs of {space!r} are damaged: one is gone, or records that moved it are "
            "lost. Restore the store from a copy; other spaces are not affected."
        )
    return [row[:3] for row in rows]


# Records.


def tail_rows(db: sqlite3.Connection, number: int | None, first: int, last: int) -> list[Row]:
    """Rows of the tail with these numbers, ascending."""
    if number is None:
        return []
    rows = db.execute(
        "SELECT key, dictionary, CAST(frame AS BLOB) FROM tail WHERE key BETWEEN ? AND ? "
        "ORDER BY key",
        (number << SEQUENCE_BITS | first, number << SEQUENCE_BITS | last),
    )
    return [Row(key & LAST, dictionary, frame or b"") for key, dictionary, frame in rows]


def load(db: sqlite3.Connection, number: int | None, sequence: int) -> list[Row] | Packed | None:
    """The group of a record in the tail up to it, or the segment that holds it."""
    rows = tail_rows(db, number, (sequence - 1) // GROUP * GROUP + 1, sequence)
    if rows and rows[-1].sequence == sequence:
        return rows
    return None if number is None else segment(db, number, sequence)


def segment(db: sqlite3.Connection, number: int, sequence: int) -> Packed | None:
    """The segment that holds a record."""
    row = db.execute(
        "SELECT first, key, CAST(head AS BLOB), CAST(data AS BLOB) FROM segments "
        "WHERE key BETWEEN ? AND ? ORDER BY key LIMIT 1",
        (number << SEQUENCE_BITS | sequence, number << SEQUENCE_BITS | LAST),
    ).fetchone()
    if row is None or row[0] > sequence:
        return None
    return Packed(row[0], row[1] & LAST, row[2] or b"", row[3] or b"")


# Leases.


def read_lease(db: sqlite3.Connection, space: int | None, name: str) -> LeaseRecord | None:
    """A lease that was granted and not given back."""
    row = db.execute(
        "SELECT name, holder, token, beat, duration FROM leases WHERE space = ? AND name = ?",
        (space, name),
    ).fetchone()
    return None if row is None else lease_record(*row)


def lease_record(name: str, holder: bytes, token: int, beat: int, duration: float) -> LeaseRecord:
    """A lease from its row."""
    return LeaseRecord(name, holder.decode("utf-8", "surrogatepass"), token, beat, duration)


def write_lease(db: sqlite3.Connection, space: int, record: LeaseRecord) -> None:
    """Put a lease in the place of the one before."""
    holder = record.holder.encode("utf-8", "surrogatepass")  # Any text may name a holder.
    db.execute(
        "INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?, ?, ?)",
        (space, record.name, holder, record.token, record.beat, record.duration),
    )
