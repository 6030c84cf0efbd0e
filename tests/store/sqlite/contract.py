"""The contract of stores for the embedded engine, and ways to look at what it stores."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ropewalk.store import SqliteStore, Store
from ropewalk.store.sqlite.schema import SEQUENCE_BITS
from ropewalk.testing import StoreContract
from ropewalk.tree import ObjectId
from tests.store.logs import PacksAtOnce, find_node, flipped, segment_without


@contextmanager
def connected(folder: Path) -> Iterator[sqlite3.Connection]:
    """A connection of the test's own to the database of a store."""
    db = sqlite3.connect(folder / "store.db", isolation_level=None)
    try:
        yield db
    finally:
        db.close()


def pack_files(folder: Path) -> list[Path]:
    """The files of packs of shared objects."""
    return sorted((folder / "packs").glob("*"))


class EagerStore(PacksAtOnce, SqliteStore):
    """An embedded store that packs at once."""


class SqliteContract(StoreContract):
    """What every store promises, with ways to damage what this engine stores."""

    def damage(self, store: Store, id: ObjectId) -> bool:
        assert isinstance(store, SqliteStore)
        damage(store.path, id)
        return True

    def lose(self, store: Store, id: ObjectId) -> bool:
        assert isinstance(store, SqliteStore)
        lose(store.path, id)
        return True


def damage(folder: Path, id: ObjectId) -> None:
    """Change a bit of a shared object, or of the record or segment that brings a node."""
    with connected(folder) as db:
        found = db.execute(
            "SELECT number, file, data, start + shared.size - 1 FROM shared "
            "JOIN packs ON number = pack WHERE id = ?",
            (id,),
        ).fetchone()
        if found is None:
            _damage_record(folder, db, id)
            return
        number, file, data, at = found
        if file is None:
            db.execute("UPDATE packs SET data = ? WHERE number = ?", (flipped(data, at), number))
        else:
            path = folder / "packs" / file
            path.write_bytes(flipped(path.read_bytes(), at))


def _damage_record(folder: Path, db: sqlite3.Connection, id: ObjectId) -> None:
    with SqliteStore(folder) as looking:  # One that remembers nothing of it.
        space, sequence, _ = find_node(looking, id)
    key = _key(db, space, sequence)
    row = db.execute("SELECT frame FROM tail WHERE key = ?", (key,)).fetchone()
    if row is not None:
        frame = flipped(row[0], len(row[0]) - 1)
        db.execute("UPDATE tail SET frame = ? WHERE key = ?", (frame, key))
        return
    last, data = db.execute(
        "SELECT key, data FROM segments WHERE key >= ? ORDER BY key LIMIT 1", (key,)
    ).fetchone()
    changed = bytes(byte ^ 1 for byte in data)  # Each of its blocks.
    db.execute("UPDATE segments SET data = ? WHERE key = ?", (changed, last))


def lose(folder: Path, id: ObjectId) -> None:
    """Delete a shared object, or write the segment of a node without it."""
    with connected(folder) as db:
        if db.execute("DELETE FROM shared WHERE id = ?", (id,)).rowcount:
            return
        with SqliteStore(folder) as looking:
            space, packed = segment_without(looking, id)
        db.execute(
            "UPDATE segments SET head = ?, data = ? WHERE key = ?",
            (packed.head, packed.data, _key(db, space, packed.last)),
        )


def _key(db: sqlite3.Connection, space: str, sequence: int) -> int:
    (number,) = db.execute("SELECT number FROM spaces WHERE name = ?", (space,)).fetchone()
    return int(number) << SEQUENCE_BITS | sequence
