"""Ways to look into stores that keep logs of records, and to take something out of them."""

from __future__ import annotations

from ropewalk.store.log import LogStore, SpaceCache
from ropewalk.store.packer import heads_of, pack
from ropewalk.store.record import place_of, settled_header
from ropewalk.store.segment import Packed, build, without
from ropewalk.tree import ObjectId


class PacksAtOnce(LogStore):
    """Packs the whole tail after every commit; for a class in front of a store's own."""

    def _watch_tail(self, cache: SpaceCache, space: str, sequence: int, size: int) -> None:
        pack(self, space, whole=True)


def find_node(store: LogStore, id: ObjectId) -> tuple[str, int, int]:
    """The space, the record and the position of a node."""
    return next(
        (space, record.sequence, at)
        for space in store.spaces()
        for record in store.records(space)
        for at, node in enumerate(record.nodes())
        if node is not None and node.id == id
    )


def segment_without(store: LogStore, id: ObjectId) -> tuple[str, Packed]:
    """The space of a node, and the segment that it is in, made anew without it."""
    space, sequence, at = find_node(store, id)
    pack(store, space, whole=True)
    records = store._stretch(space, sequence)
    (one,) = (record for record in records if record.sequence == sequence)
    header = settled_header(one, lambda position: position != at)
    gone = place_of(sequence, at)
    records[records.index(one)] = without(one, header, lambda place: place != gone)
    return space, build(space, records, heads_of(records))


def flipped(data: bytes, at: int) -> bytes:
    """Bytes of which one bit is another."""
    changed = bytearray(data)
    changed[at] ^= 1
    return bytes(changed)
