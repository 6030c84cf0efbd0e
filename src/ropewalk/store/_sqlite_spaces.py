"""Spaces in an embedded store: refs, operations and leases. Inside a transaction of the caller."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from hashlib import sha256
from typing import NamedTuple
from zlib import crc32

from ropewalk.errors import Corrupt
from ropewalk.store import _sqlite_packs as packs
from ropewalk.store import _sqlite_schema as schema
from ropewalk.store._decide import Batch, Decision, Facts, Recorded
from ropewalk.store._records import (
    LeaseRecord,
    Operation,
    decode_operation,
    encode_operation,
)
from ropewalk.store._sqlite_collection import replace_condemned
from ropewalk.store._sqlite_index import MOMENT, Moment, Row, Tails, make_moment, operation_key
from ropewalk.tree._objects import ObjectId

LAST = (1 << schema.SEQUENCE_BITS) - 1
AFTER_NAMES = "\x7f"  # Greater than every character of a name.
DIGEST_SIZE = 16
_CHECK_SIZE = 4

_LAST_INDEXED = f"""(
    SELECT key FROM operations
    WHERE key BETWEEN spaces.number << {schema.SEQUENCE_BITS}
        AND (spaces.number << {schema.SEQUENCE_BITS}) + {LAST}
    ORDER BY key DESC LIMIT 1
)"""  # noqa: S608 - numbers of our own
_FIND_SPACE = f"SELECT spaces.number, {_LAST_INDEXED} FROM spaces WHERE name = ?"  # noqa: S608
_LOOK = f"""
SELECT {MOMENT}, spaces.number, {_LAST_INDEXED}, target, refs.sequence,
    EXISTS (SELECT 1 FROM writes WHERE write = ?)
FROM facts LEFT JOIN spaces ON spaces.name = ?
LEFT JOIN refs ON refs.space = spaces.number AND refs.name = ?
"""  # noqa: S608


class Space(NamedTuple):
    """A space as it is now; its number is None as long as nobody has written to it."""

    number: int | None
    sequence: int


class Look(NamedTuple):
    """What a commit finds."""

    moment: Moment
    space: int | None
    write: int
    """The hash of its write id."""
    facts: Facts


def find_space(moment: Moment, name: str) -> Space:
    """A space, whether anybody has written to it or not."""
    row = moment.db.execute(_FIND_SPACE, (name,)).fetchone()
    if row is None:
        return Space(None, 0)
    number, key = row
    return Space(number, moment.last_operation(number, (key or 0) & LAST))


def expect_logged(space: str, sequence: int, moved: int) -> None:
    """Raise if a ref was moved by an operation that the log no longer has."""
    if moved > sequence:
        raise Corrupt(
            f"the log of {space!r} ends at operation {sequence}, but a ref was moved by operation "
            f"{moved}: rows of the log are lost. Restore the store from a copy."
        )


def space_number(db: sqlite3.Connection, name: str) -> int | None:
    """A space's number, if it has one."""
    row = db.execute("SELECT number FROM spaces WHERE name = ?", (name,)).fetchone()
    return None if row is None else row[0]


def make_space(db: sqlite3.Connection, name: str) -> int:
    """A space's number, given now if it had none."""
    number = space_number(db, name)
    if number is None:
        number = db.execute("INSERT INTO spaces (name, tokens) VALUES (?, 0)", (name,)).lastrowid
    assert number is not None
    return number


def look(db: sqlite3.Connection, tails: Tails, moment: Moment | None, batch: Batch) -> Look:
    """What `decide` must know. `moment` is that of an earlier member of the transaction."""
    moves = batch.moves
    write = _write_key(batch)
    first = moves[0].name if moves else ""
    row = db.execute(_LOOK, (write, batch.space, first)).fetchone()
    if moment is None:
        moment = make_moment(db, tails, None if row is None else row[:4])
    number, key, target, moved, written = row[4:]
    sequence = 0 if number is None else moment.last_operation(number, (key or 0) & LAST)
    expect_logged(batch.space, sequence, moved or 0)
    refs: dict[str, ObjectId] = {} if target is None else {first: target}
    for move in moves[1:]:
        target = _target(db, number, move.name)
        if target is not None:
            refs[move.name] = target
    rows = moment.rows_of_write(write, bool(written))
    facts = Facts(
        sequence=sequence,
        epoch=moment.epoch,
        recorded=_recorded(db, number, batch, rows) if rows else None,
        refs=refs,
        tokens=_tokens(db, number, batch) if batch.fences else {},
        present=moment.presence(batch.asks(moment.epoch)),
    )
    return Look(moment, number, write, facts)


def _recorded(
    db: sqlite3.Connection, space: int | None, batch: Batch, rows: list[int]
) -> Recorded | None:
    """The write of this space with the batch's write id. All are remembered."""
    for number in rows:
        row = db.execute("SELECT space, record FROM log WHERE number = ?", (number,)).fetchone()
        if row is None:
            continue
        found, record = row
        if found == space:
            operation = read_operation(batch.space, record, number)
            if operation.write_id == batch.write_id:
                known = record[:DIGEST_SIZE]
                same = batch.digest.startswith(known)
                return Recorded(batch.digest if same else known, operation)
    return None


def _target(db: sqlite3.Connection, space: int | None, name: str) -> ObjectId | None:
    row = db.execute(
        "SELECT target FROM refs WHERE space = ? AND name = ?", (space, name)
    ).fetchone()
    return None if row is None else row[0]


def _tokens(db: sqlite3.Connection, space: int | None, batch: Batch) -> Mapping[str, int]:
    leases = (read_lease(db, space, fence.name) for fence in batch.fences)
    return {lease.name: lease.token for lease in leases if lease}


def apply(looked: Look, batch: Batch, decision: Decision, ahead: packs.Ahead | None) -> None:
    """Do what was decided."""
    moment = looked.moment
    db, operation, frames = moment.db, decision.operation, decision.frames
    assert operation.sequence <= LAST
    space = make_space(db, batch.space) if looked.space is None else looked.space
    present = looked.facts.present
    if present and (again := [one.id for one in frames if one.id in present]):
        replace_condemned(moment, again)
    # Who wrote ahead and then slept for long may find its file taken for an orphan.
    if ahead is not None and ahead.path.exists():
        in_file = {one.id for one in ahead.frames}
        columns = packs.add_file(db, [one for one in frames if one.id in in_file], ahead)
        others = [one for one in frames if one.id not in in_file]
        if others:
            _add_pack(moment, packs.pack_columns(others))
    else:
        columns = packs.pack_columns(frames)
    record = _seal(batch.digest[:DIGEST_SIZE] + encode_operation(operation))
    number = db.execute(
        "INSERT INTO log VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)",
        (space, operation.sequence, looked.write, record, *columns),
    ).lastrowid
    assert number is not None
    _move_refs(db, space, operation)
    row = Row(number, space, operation.sequence, looked.write, columns.entries, columns.bases)
    moment.add(row)


def _add_pack(moment: Moment, columns: packs.Columns) -> None:
    number = packs.insert_pack(moment.db, columns)
    moment.add(Row(number, None, None, None, columns.entries, columns.bases))


def _move_refs(db: sqlite3.Connection, space: int, operation: Operation) -> None:
    for name, expected, target in operation.moves:
        if target is None:
            db.execute("DELETE FROM refs WHERE space = ? AND name = ?", (space, name))
        elif expected is None:
            db.execute(
                "INSERT INTO refs VALUES (?, ?, ?, ?)", (space, name, target, operation.sequence)
            )
        else:
            db.execute(
                "UPDATE refs SET target = ?, sequence = ? WHERE space = ? AND name = ?",
                (target, operation.sequence, space, name),
            )


def read_operations(moment: Moment, space: str, after: int, limit: int) -> list[Operation]:
    """Operations of a space after this number, in order."""
    found = find_space(moment, space)
    if found.number is None or found.sequence <= after:
        return []
    number, last = found.number, min(found.sequence, after + limit)
    moved = moment.db.execute(
        "SELECT max(sequence) FROM refs WHERE space = ?", (number,)
    ).fetchone()[0]
    expect_logged(space, found.sequence, moved or 0)
    records = moment.db.execute(
        "SELECT record, number FROM operations JOIN log USING (number) WHERE key BETWEEN ? AND ? "
        "ORDER BY key",
        (operation_key(number, after + 1), operation_key(number, last)),
    ).fetchall()
    for sequence in range(after + len(records) + 1, last + 1):
        place = moment.row_of_operation(number, sequence)
        row = moment.db.execute("SELECT record FROM log WHERE number = ?", (place,)).fetchone()
        records.append((None if row is None else row[0], place))
    return [read_operation(space, *record) for record in records]


def read_operation(space: str, record: object, number: int) -> Operation:
    """An operation from its record in this row of the log, where the digest stands before it."""
    if not isinstance(record, bytes) or record[-_CHECK_SIZE:] != _checksum(record[:-_CHECK_SIZE]):
        raise Corrupt(
            f"row {number} of the log is damaged: it should hold an operation of {space!r}. "
            "Restore the store from a copy; other spaces are not affected."
        )
    return decode_operation(space, record[DIGEST_SIZE:-_CHECK_SIZE])


def _seal(record: bytes) -> bytes:
    return record + _checksum(record)


def _checksum(record: bytes) -> bytes:
    return crc32(record).to_bytes(_CHECK_SIZE, "little")


def spaces_with_operations(moment: Moment, beginning: str) -> list[str]:
    """Names of spaces that begin so, sorted."""
    rows = moment.db.execute(
        f"SELECT name, number, {_LAST_INDEXED}, "  # noqa: S608
        "EXISTS (SELECT 1 FROM refs WHERE space = spaces.number) FROM spaces "
        "WHERE name >= ? AND name < ? ORDER BY name",
        (beginning, beginning + AFTER_NAMES),
    ).fetchall()
    # A ref alone says that there were operations: then who asks for them is told.
    return [
        name
        for name, number, key, moved in rows
        if key is not None or moved or moment.last_operation(number, 0)
    ]


def _write_key(batch: Batch) -> int:
    """A number that finds a write; two writes may share it, so the write id decides."""
    digest = sha256(f"{batch.space} {batch.write_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


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
