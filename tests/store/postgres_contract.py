"""The contract of stores for Postgres, and ways to damage what it stores."""

from __future__ import annotations

from ropewalk.store import PostgresStore, Store
from ropewalk.store.log import SpaceCache
from ropewalk.store.packer import heads_of, pack
from ropewalk.store.record import place_of, settled_header
from ropewalk.store.segment import build, without
from ropewalk.testing._stores._base import Base
from ropewalk.tree import ObjectId


class EagerStore(PostgresStore):
    """Packs the whole tail after every commit."""

    def _watch_tail(self, cache: SpaceCache, space: str, sequence: int, size: int) -> None:
        pack(self, space, whole=True)


class PostgresDamage(Base):
    """What damages a store in Postgres."""

    def damage(self, store: Store, id: ObjectId) -> bool:
        assert isinstance(store, PostgresStore)
        damage(store, id)
        return True

    def lose(self, store: Store, id: ObjectId) -> bool:
        assert isinstance(store, PostgresStore)
        lose(store, id)
        return True


def damage(store: PostgresStore, id: ObjectId) -> None:
    """Change bytes of a shared object, or of the record or segment that brings a node."""
    asked = "SELECT frame FROM {s}.shared WHERE id = %b::bytea"
    if rows := store._ask(asked, id):
        changed = "UPDATE {s}.shared SET frame = %b::bytea WHERE id = %b::bytea"
        store._ask(changed, flipped(rows[0][0]), id)
        return
    space, sequence, _ = _find(store, id)
    place = (_number(store, space), sequence)
    rows = store._ask(
        "SELECT frame FROM {s}.tail WHERE space = %b::integer AND sequence = %b::integer", *place
    )
    if rows:
        store._ask(
            "UPDATE {s}.tail SET frame = %b::bytea "
            "WHERE space = %b::integer AND sequence = %b::integer",
            flipped(rows[0][0]),
            *place,
        )
        return
    ((last, data),) = store._ask(
        "SELECT last, data FROM {s}.segments WHERE space = %b::integer AND last >= %b::integer "
        "ORDER BY last LIMIT 1",
        *place,
    )
    store._ask(
        "UPDATE {s}.segments SET data = %b::bytea WHERE space = %b::integer AND last = %b::integer",
        bytes(byte ^ 1 for byte in data),  # Each of its blocks.
        place[0],
        last,
    )


def lose(store: PostgresStore, id: ObjectId) -> None:
    """Delete a shared object, or write the segment of a node without it."""
    deleted = "DELETE FROM {s}.shared WHERE id = %b::bytea RETURNING 1"
    if store._ask(deleted, id):
        return
    space, sequence, at = _find(store, id)
    pack(store, space, whole=True)
    records = store._stretch(space, sequence)
    (one,) = (record for record in records if record.sequence == sequence)
    header = settled_header(one, lambda position: position != at)
    records[records.index(one)] = without(
        one, header, lambda place: place != place_of(sequence, at)
    )
    packed = build(space, records, heads_of(records))
    store._ask(
        "UPDATE {s}.segments SET head = %b::bytea, data = %b::bytea "
        "WHERE space = %b::integer AND last = %b::integer",
        packed.head,
        packed.data,
        _number(store, space),
        packed.last,
    )
    store._forget_space(space)


def _find(store: PostgresStore, id: ObjectId) -> tuple[str, int, int]:
    """The space, the record and the position of a node."""
    return next(
        (space, record.sequence, at)
        for space in store.spaces()
        for record in store.records(space)
        for at, node in enumerate(record.nodes())
        if node is not None and node.id == id
    )


def _number(store: PostgresStore, space: str) -> int:
    ((number,),) = store._ask("SELECT number FROM {s}.spaces WHERE name = %b::text", space)
    assert isinstance(number, int)
    return number


def flipped(data: bytes) -> bytes:
    """Bytes of which the last bit is another."""
    return data[:-1] + bytes((data[-1] ^ 1,))
