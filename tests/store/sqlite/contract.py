"""The contract of stores for the embedded engine, and ways to look at what it stores."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ropewalk.store import SqliteStore, Store
from ropewalk.store.log import SpaceCache
from ropewalk.store.packer import pack
from ropewalk.store.sqlite.schema import SEQUENCE_BITS
from ropewalk.testing import StoreContract
from ropewalk.testing._stores._base import SPACE
from ropewalk.tree import ObjectId


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


class EagerStore(SqliteStore):
    """Packs the whole tail after every commit."""

    def _watch_tail(self, cache: SpaceCache, space: str, sequence: int, size: int) -> None:
        pack(self, space, whole=True)


class SqliteContract(StoreContract):
    """What every store promises, with ways to damage what this engine stores."""

    def damage(self, store: Store, id: ObjectId) -> bool:
        assert isinstance(store, SqliteStore)
        with connected(store.path) as db:
            damage_shared(store.path, db, id) or damage_record(store.path, db, id)
        return True

    def lose(self, store: Store, id: ObjectId) -> bool:
        assert isinstance(store, SqliteStore)
        with connected(store.path) as db:
            return db.execute("DELETE FROM shared WHERE id = ?", (id,)).rowcount == 1


def damage_shared(folder: Path, db: sqlite3.Connection, id: ObjectId) -> bool:
    """Change a bit of a shared object; whether there is one."""
    found = db.execute(
        "SELECT number, file, data, start + shared.size - 1 FROM shared "
        "JOIN packs ON number = pack WHERE id = ?",
        (id,),
    ).fetchone()
    if found is None:
        return False
    number, file, data, at = found
    if file is None:
        db.execute("UPDATE packs SET data = ? WHERE number = ?", (flipped(data, at), number))
    else:
        path = folder / "packs" / file
        path.write_bytes(flipped(path.read_bytes(), at))
    return True


def damage_record(folder: Path, db: sqlite3.Connection, id: ObjectId, space: str = SPACE) -> None:
    """Change the record of a space that brings a node, or the segment that it is in."""
    with SqliteStore(folder) as looking:  # One that remembers nothing of it.
        sequence = next(
            record.sequence
            for record in looking.records(space)
            if any(node is not None and node.id == id for node in record.nodes())
        )
    (number,) = db.execute("SELECT number FROM spaces WHERE name = ?", (space,)).fetchone()
    key = number << SEQUENCE_BITS | sequence
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


def flipped(data: bytes, at: int) -> bytes:
    """Bytes of which one bit is another."""
    changed = bytearray(data)
    changed[at] ^= 1
    return bytes(changed)
