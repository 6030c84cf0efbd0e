"""Spaces in an embedded store: refs, operations and leases. Inside a transaction of the caller."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple

from holdfast.errors import FormatError
from holdfast.store import _sqlite_packs as packs
from holdfast.store import _sqlite_schema as schema
from holdfast.store._decide import Batch, Decision, Facts, Recorded
from holdfast.store._records import LeaseRecord, decode_operation, encode_operation
from holdfast.tree._objects import ObjectId

LAST = (1 << schema.SEQUENCE_BITS) - 1
AFTER_NAMES = "\x7f"  # Greater than every character of a name.

_FIND_SPACE = f"""
SELECT facts.value, spaces.number, (
    SELECT key FROM operations
    WHERE key BETWEEN spaces.number << {schema.SEQUENCE_BITS}
        AND (spaces.number << {schema.SEQUENCE_BITS}) + {LAST}
    ORDER BY key DESC LIMIT 1
)
FROM facts LEFT JOIN spaces ON spaces.name = ? WHERE facts.name = 'epoch'
"""  # noqa: S608 - numbers of our own


class Space(NamedTuple):
    """A space as it is now; its number is None as long as nobody has written to it."""

    epoch: int
    number: int | None
    sequence: int


def find_space(db: sqlite3.Connection, name: str) -> Space:
    """A space, whether anybody has written to it or not."""
    row = db.execute(_FIND_SPACE, (name,)).fetchone()
    if row is None:
        raise FormatError("the store has no epoch")
    epoch, number, key = row
    return Space(epoch, number, 0 if key is None else key & LAST)


def make_space(db: sqlite3.Connection, name: str) -> int:
    """A space's number, given now if it had none."""
    number = find_space(db, name).number
    if number is None:
        number = db.execute("INSERT INTO spaces (name, tokens) VALUES (?, 0)", (name,)).lastrowid
    assert number is not None
    return number


def facts(db: sqlite3.Connection, space: Space, batch: Batch) -> Facts:
    """What `decide` must know."""
    leases = {fence.name: read_lease(db, space.number, fence.name) for fence in batch.fences}
    return Facts(
        sequence=space.sequence,
        epoch=space.epoch,
        recorded=_recorded(db, space, batch),
        refs=_targets(db, space.number, (move.name for move in batch.moves)),
        tokens={name: lease.token for name, lease in leases.items() if lease},
        present=packs.read_presence(db, batch.asks(space.epoch)),
    )


def _recorded(db: sqlite3.Connection, space: Space, batch: Batch) -> Recorded | None:
    """The write of this space with the batch's write id. All are remembered."""
    if space.number is None:
        return None
    first = space.number << schema.SEQUENCE_BITS
    rows = db.execute(
        "SELECT digest, record FROM operations WHERE write = ? AND key BETWEEN ? AND ?",
        (_write_key(batch), first, first + LAST),
    )
    for digest, record in rows:
        operation = decode_operation(batch.space, record)
        if operation.write_id == batch.write_id:
            return Recorded(digest, operation)
    return None


def _targets(
    db: sqlite3.Connection, space: int | None, names: Iterable[str]
) -> dict[str, ObjectId]:
    targets: dict[str, ObjectId] = {}
    for name in names:
        row = db.execute(
            "SELECT target FROM refs WHERE space = ? AND name = ?", (space, name)
        ).fetchone()
        if row is not None:
            targets[name] = row[0]
    return targets


def apply(
    db: sqlite3.Connection,
    space: Space,
    batch: Batch,
    decision: Decision,
    facts: Facts,
    ahead: packs.Ahead | None,
) -> None:
    """Do what was decided."""
    operation = decision.operation
    assert operation.sequence <= LAST
    number = make_space(db, batch.space) if space.number is None else space.number
    packs.add_frames(db, decision.frames, facts.present, ahead)
    for name, _, target in operation.moves:
        if target is None:
            db.execute("DELETE FROM refs WHERE space = ? AND name = ?", (number, name))
        else:
            db.execute(
                "INSERT OR REPLACE INTO refs VALUES (?, ?, ?, ?)",
                (number, name, target, operation.sequence),
            )
    key = (number << schema.SEQUENCE_BITS) + operation.sequence
    db.execute(
        "INSERT INTO operations VALUES (?, ?, ?, ?)",
        (key, _write_key(batch), batch.digest, encode_operation(operation)),
    )


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
