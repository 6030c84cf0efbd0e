"""A commit on SQLite, inside its transaction: `append` looks, decides and writes.

`SqliteLog._commit` prepares it, and `Database.write` surrounds it with BEGIN and COMMIT, for a
group of threads at once. The rest of the module reads and writes the rows of spaces, refs, records
and leases. Rows have checksums (`mark`), so damage to one is noticed by the read that needs it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from functools import lru_cache
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Final
from zlib import crc32

import ormsgpack

from ropewalk.errors import Corrupt, MissingObjects, RefMoved
from ropewalk.store.folder import FolderStore
from ropewalk.store.log import Moved
from ropewalk.store.model import REMEMBERED_WRITES, LeaseRecord, Operation
from ropewalk.store.quota import expect_room
from ropewalk.store.record import GROUP, Append, Record, Row, fenced_off, same_group, seal
from ropewalk.store.segment import Packed
from ropewalk.store.sqlite import packs
from ropewalk.store.sqlite.database import Database, translated
from ropewalk.store.sqlite.schema import LAST, SEQUENCE_BITS, STEP_COLUMNS, used_bytes
from ropewalk.tree.objects import ObjectId

_MARKS_KNOWN: Final = 4096
MARKS: Final = 1 << 56
"""Sums of checksums of rows are modulo this."""

LOOK: Final = f"""
SELECT spaces.number, spaces.epoch, spaces.mark, tail.key, tail.refs, refs.target, refs.sequence,
    refs.mark
FROM spaces
LEFT JOIN tail ON tail.key = (
    SELECT max(key) FROM tail WHERE key BETWEEN spaces.number << {SEQUENCE_BITS}
        AND (spaces.number << {SEQUENCE_BITS}) + {LAST}
)
LEFT JOIN refs ON refs.space = spaces.number AND refs.name = ?
WHERE spaces.name = ?
"""  # noqa: S608 - numbers of our own
_INSERT: Final = f"""
INSERT INTO tail (key, dictionary, refs, {STEP_COLUMNS}, frame)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""  # noqa: S608


class SqliteLog(FolderStore):
    """The half of an embedded store that commits."""

    _database: Database
    _packs: Path
    """The folder of large packs."""

    def _commit(self, batch: Append) -> Operation:
        pack = self._pack_of(batch) if batch.shared else None
        cache = self._space(batch.space)
        tip = cache.tip
        dictionary, known = tip.dictionary(batch)
        frame = batch.frame(known)

        def work(db: sqlite3.Connection) -> Operation:
            limit = self._size_limit
            return append(db, batch, tip.last, dictionary, frame, pack, limit, self._recorded)

        try:
            operation = self._database.write(work, len(frame) + (pack.size if pack else 0))
        except BaseException:
            if pack is not None and pack.file is not None:
                self._disk.discard([pack.file])
            raise
        if batch.recorded is None:
            self._landed(batch, operation.sequence)
            if self._listeners.wakes:
                self._listeners.wake(batch.space)
            self._watch_tail(cache, batch.space, operation.sequence, len(frame))
        elif pack is not None and pack.file is not None:
            self._disk.discard([pack.file])
        return operation

    def _recorded(
        self, db: sqlite3.Connection, batch: Append, number: int, last: int
    ) -> Operation | None:
        """The earlier operation with the write id of a commit, among the latest."""
        # Within the transaction: another member of the group may just have appended it.
        after = max(last - REMEMBERED_WRITES, 0)
        return self._find_write(batch, self._latest(db, number, batch.space, last, after))

    def _latest(
        self, db: sqlite3.Connection, number: int, space: str, last: int, after: int
    ) -> Iterator[Record]:
        """The records after a number as a transaction sees them, the last first."""
        while last > after:
            for record in reversed(self._read_stretch(space, last, load(db, number, last))):
                if after < record.sequence <= last:
                    last = record.sequence - 1
                    yield record
                elif record.sequence <= after:
                    return

    def _pack_of(self, batch: Append) -> packs.Pack | None:
        """A pack of the shared objects that are not stored yet; a large one becomes a file."""
        there = self._present_shared(list(batch.shared))
        absent = [one for id, one in batch.shared.items() if id not in there]
        if not absent:
            return None
        pack = packs.prepare(absent)
        if pack.size <= packs.LARGE:
            return pack
        if self._size_limit is not None:
            limit = self._size_limit
            self._database.read(lambda db: expect_room(used_bytes(db), pack.size, limit))
        with translated(self.path):
            return packs.write_ahead(self._disk, self._packs, pack)


def append(  # noqa: C901, PLR0912, PLR0915 - one story, from the look to the last row
    db: sqlite3.Connection,
    batch: Append,
    since: int,
    dictionary: int | None,
    frame: bytes,
    pack: packs.Pack | None,
    size_limit: int | None,
    find_write: Callable[[sqlite3.Connection, Append, int, int], Operation | None],
) -> Operation:
    """Append a record to the log of its space, and move refs.

    `frame` is compressed with record `dictionary`, which was the right one when `since` was the
    last record; if it has been packed meanwhile, the frame is compressed again without it.
    `find_write` looks for an earlier write with the same id, back from the last record.
    """
    # Look.
    moves, space = batch.moves, batch.space
    row = db.execute(LOOK, (moves[0].name if moves else "", space)).fetchone()
    if row is None:
        expect_unknown(db, space)
        number, epoch, last, digest, key, target, marked = next_number(db), 1, 0, 0, None, None, 0
    else:
        number, epoch, space_mark, key, digest, target, moved, marked = row
        if key is not None and digest is not None:
            last = key & LAST
        else:
            last, digest = find_end(db, number, key, digest)
        if space_mark != mark(number, space):
            raise damaged_space(space)
        if target is not None:
            expect_ref(space, number, last, moves[0].name, target, moved, marked)

    # Decide.
    recorded = None if batch.fresh else find_write(db, batch, number, last)
    if recorded is not None:
        batch.recorded = recorded
        return recorded
    if batch.fences:
        _check_fences(db, number, batch)
    for name, before, _ in moves:
        there = target if name == moves[0].name else _target(db, number, name)
        if there != before:
            raise RefMoved(name, before, there)
    if epoch != batch.known_epoch:
        raise Moved(epoch)
    if batch.missing:
        raise MissingObjects(sorted(batch.missing))
    needed = batch.names.difference(batch.shared)
    if needed and (gone := needed - packs.present(db, needed)):
        raise MissingObjects(sorted(gone))
    sequence = last + 1
    assert sequence <= LAST
    # Packing never leaves a record behind whose dictionary it takes. So while the last record is
    # in the tail, its dictionary is there too.
    leans = dictionary is None or (key is not None and since == last)
    if not leans and not _is_in_tail(db, number, dictionary, sequence):
        dictionary, frame = None, batch.frame(None)
    if size_limit is not None and batch.objects:
        expect_room(used_bytes(db), len(frame) + (pack.size if pack else 0), size_limit)

    # Write.
    if row is None:
        insert_space(db, number, space)
    for name, before, after in moves:
        known = marked if name == moves[0].name else None
        digest += _move(db, number, name, before, after, sequence, known)
    if batch.shared or batch.names:
        _add_shared(db, number, batch, pack)
    step = batch.step
    if step is None:
        said: tuple[object, ...] = (None, None, batch.time, None, None, None, None, None)
    else:
        said = (
            step.id, batch.parent, step.time, step.branch or None, step.status or None,
            step.agent or None, step.logic_step or None, step.description or None,
        )  # fmt: skip
    about = batch.metadata
    db.execute(
        _INSERT,
        (
            number << SEQUENCE_BITS | sequence, dictionary, digest % MARKS, *said,
            about.get("action"), about.get("key"), seal(space, sequence, frame),
        ),
    )  # fmt: skip
    return Operation(space, sequence, moves, batch.write_id, batch.time, epoch, about)


def _check_fences(db: sqlite3.Connection, number: int, batch: Append) -> None:
    for fence in batch.fences:
        found = db.execute(
            "SELECT token FROM leases WHERE space = ? AND name = ?", (number, fence.name)
        ).fetchone()
        if (0 if found is None else found[0]) != fence.token:
            raise fenced_off(batch.space, fence)


def _target(db: sqlite3.Connection, number: int, name: str) -> ObjectId | None:
    row = db.execute(
        "SELECT target FROM refs WHERE space = ? AND name = ?", (number, name)
    ).fetchone()
    return None if row is None else row[0]


def _is_in_tail(db: sqlite3.Connection, number: int, dictionary: int | None, sequence: int) -> bool:
    """Whether record `dictionary` may be the dictionary of record `sequence`: not packed yet."""
    assert dictionary is not None
    key = number << SEQUENCE_BITS | dictionary
    found = db.execute("SELECT 1 FROM tail WHERE key = ?", (key,)).fetchone()
    return found is not None and same_group(sequence, dictionary)


def _move(
    db: sqlite3.Connection,
    number: int,
    name: str,
    before: ObjectId | None,
    after: ObjectId | None,
    sequence: int,
    marked: int | None,
) -> int:
    """Move a ref, and return by how much the sum of the checksums of all refs changes."""
    if before is None:
        if after is None:
            return 0
        fresh = mark(number, name, after, sequence)
        db.execute(
            "INSERT INTO refs VALUES (?, ?, ?, ?, ?)", (number, name, after, sequence, fresh)
        )
        return fresh
    if marked is None:
        marked = db.execute(
            "SELECT mark FROM refs WHERE space = ? AND name = ?", (number, name)
        ).fetchone()[0]
    if after is None:
        db.execute("DELETE FROM refs WHERE space = ? AND name = ?", (number, name))
        return -marked
    fresh = mark(number, name, after, sequence)
    db.execute(
        "UPDATE refs SET target = ?, sequence = ?, mark = ? WHERE space = ? AND name = ?",
        (after, sequence, fresh, number, name),
    )
    return fresh - marked


def _add_shared(
    db: sqlite3.Connection, number: int, batch: Append, pack: packs.Pack | None
) -> None:
    """Insert the shared objects that are not stored yet, and note that the space names them."""
    if batch.shared:
        absent = set(batch.shared) - packs.present(db, batch.shared)
        sent = set() if pack is None else {one.id for one in pack.objects}
        if pack is not None and (absent & sent or pack.file is not None):
            packs.insert(db, pack, absent & sent)
        if absent - sent:  # Collected since we looked.
            packs.insert(db, packs.prepare([batch.shared[id] for id in absent - sent]), absent)
    db.executemany(
        "INSERT OR IGNORE INTO named VALUES (?, ?)", [(id, number) for id in sorted(batch.names)]
    )


# Spaces and refs.


@lru_cache(_MARKS_KNOWN, typed=True)
def mark(*row: object) -> int:
    """The checksum of a row. Cached, because the next commit checks what this one writes."""
    return int.from_bytes(sha256(ormsgpack.packb(row)).digest()[:7], "big")


def next_number(db: sqlite3.Connection) -> int:
    """The number for a new space. Numbers have no gaps, so a lost row is noticed."""
    found: int = db.execute("SELECT coalesce(max(number), 0) + 1 FROM spaces").fetchone()[0]
    return found


def insert_space(db: sqlite3.Connection, number: int, space: str) -> None:
    """Add a space at its first epoch."""
    row = (number, space, probe(space), mark(number, space))
    db.execute("INSERT INTO spaces VALUES (?, ?, ?, 1, 0, ?)", row)


def probe(space: str) -> int:
    """A second index key of a space: finds its row even if the name in it is damaged."""
    return probes(space)[0] + mark(space)


def probes(prefix: str) -> tuple[int, int]:
    """A range of probes that contains those of all spaces with a prefix, and some others."""
    tenant, slash, _ = prefix.partition("/")
    if not slash:
        return -(1 << 63), (1 << 63) - 1
    # Its first byte is the tenant's, by which names are listed.
    first = ((crc32(tenant.encode()) & 0xFF) - 0x80) * MARKS
    return first, first + MARKS - 1


def expect_unknown(db: sqlite3.Connection, space: str) -> None:
    """Raise `Corrupt` if a space that is not found by name exists by its probe."""
    if db.execute("SELECT 1 FROM spaces WHERE probe = ?", (probe(space),)).fetchone():
        raise damaged_space(space)


def find_end(
    db: sqlite3.Connection, number: int, key: int | None, digest: int | None
) -> tuple[int, int]:
    """The last record of a space, and the sum of the checksums of its refs then.

    `key` and `digest` are those of the last row of its tail.
    """
    if key is not None and digest is not None:
        return key & LAST, digest
    row = db.execute(
        "SELECT key, refs FROM segments WHERE key BETWEEN ? AND ? ORDER BY key DESC LIMIT 1",
        (number << SEQUENCE_BITS, number << SEQUENCE_BITS | LAST),
    ).fetchone()
    return (0, 0) if row is None else (row[0] & LAST, row[1])


def expect_ref(
    space: str, number: int, last: int, name: str, target: object, moved: object, marked: object
) -> None:
    """Raise `Corrupt` unless a row of refs is as it was written, and its record is there."""
    if type(moved) is not int or moved > last or marked != mark(number, name, target, moved):
        raise Corrupt(
            f"ref {name} of {space!r} is damaged, or records that it was moved by are lost. "
            "Restore the store from a copy; other spaces are not affected."
        )


def damaged_space(row: str | int) -> Corrupt:
    """The error for a row of spaces, by its name or number, that is not as it was written."""
    return Corrupt(
        f"row {row!r} of the list of spaces is damaged. Restore the store from a copy; other "
        "spaces are not affected."
    )


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
