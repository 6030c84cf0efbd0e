"""The contract of stores for those on cells, and ways to damage what they store."""

from __future__ import annotations

import ormsgpack

from ropewalk.store import KeyValueStore, Store
from ropewalk.store.log import SpaceCache
from ropewalk.store.packer import heads_of, pack
from ropewalk.store.record import place_of, settled_header
from ropewalk.store.records.cells import PACKS
from ropewalk.store.records.space import Moment, Space, encode_segment, part_key
from ropewalk.store.records.store import CellStore
from ropewalk.store.segment import Packed, build, without
from ropewalk.testing import StoreContract
from ropewalk.tree import ObjectId


class EagerKeyValueStore(KeyValueStore):
    """Packs the whole tail after every commit, and writes every record to an overflow part."""

    _inline_bytes = 0

    def _watch_tail(self, cache: SpaceCache, space: str, sequence: int, size: int) -> None:
        pack(self, space, whole=True)


class CellContract(StoreContract):
    """What every store promises, with ways to damage what these store."""

    def damage(self, store: Store, id: ObjectId) -> bool:
        assert isinstance(store, CellStore)
        damage(store, id)
        store._log._spaces.clear()  # It remembers what was sound.
        return True

    def lose(self, store: Store, id: ObjectId) -> bool:
        assert isinstance(store, CellStore)
        lose(store, id)
        return True


def damage(store: CellStore, id: ObjectId) -> None:
    """Change a bit of a shared object, or of the record or segment that brings a node."""
    spot = store._shared._find(store._shared._now(), [id]).get(id)
    if spot is None:
        damage_record(store, id)
        return
    key = PACKS + spot.pack.hex()
    data = bytearray(store._parts.get_many([key])[key])
    data[spot.offset + spot.size - 1] ^= 1
    store._parts.set_many({key: bytes(data)})


def lose(store: CellStore, id: ObjectId) -> None:
    """Take a shared object out, or write the segment of a node without it."""
    if store._shared._find(store._shared._now(), [id]):
        store.discard([id])
        return
    space, sequence, at = find(store, id)
    pack(store, space, whole=True)
    records = store._stretch(space, sequence, keep=False)
    (one,) = (record for record in records if record.sequence == sequence)
    header = settled_header(one, lambda position: position != at)
    records[records.index(one)] = without(
        one, header, lambda place: place != place_of(sequence, at)
    )
    epoch, last = store.view(space).epoch, store.view(space).sequence
    named = store._log.ask(space, Space.names)
    packed = build(space, records, heads_of(records))
    assert store._log.replace(space, epoch, [packed], named, last, lambda: True)


def find(store: CellStore, id: ObjectId) -> tuple[str, int, int]:
    """Where a node is: its space, its record, and its position there."""
    return next(
        (space, record.sequence, at)
        for space in store.spaces()
        for record in store.records(space)
        for at, node in enumerate(record.nodes())
        if node is not None and node.id == id
    )


def damage_record(store: CellStore, id: ObjectId) -> None:
    """Change the record that brings a node, or the segment that it is in."""
    space, sequence, _ = find(store, id)
    with store._log.looking(space) as found:
        now, packed = found.moment, found.head.packed
    if sequence > packed:
        at = sequence - packed - 1
        entry = ormsgpack.unpackb(now.tail[at])
        if entry[-1]:
            key = part_key(space, entry[-1])
            store._parts.set_many({key: flipped(store._parts.get_many([key])[key])})
            return
        entry[-2] = flipped(entry[-2])
        tail = [*now.tail]
        tail[at] = ormsgpack.packb(entry)
        assert store._log.swap(space, now, Moment(None, now.head.changed(), tail))
        return
    with store._log.looking(space) as found:
        (part,) = (
            part
            for extent in found.indexes
            for first, last, part in found.index(extent.name).segments
            if first <= sequence <= last
        )
        segment = found.segment(sequence)
    assert segment is not None
    bad = Packed(*segment[:3], bytes(byte ^ 1 for byte in segment.data))
    key = part_key(space, part)
    store._parts.set_many({key: encode_segment(key, bad)})


def flipped(data: bytes) -> bytes:
    """Bytes of which one bit is another."""
    changed = bytearray(data)
    changed[-1] ^= 1
    return bytes(changed)
