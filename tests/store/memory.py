"""The contract of stores for the store in memory, and ways to damage what it holds."""

from __future__ import annotations

from ropewalk.store import MemoryStore, Store
from ropewalk.testing import StoreContract
from ropewalk.tree import ObjectId
from tests.store.logs import find_node, flipped, segment_without


class MemoryContract(StoreContract):
    """What every store promises, with ways to damage what this engine holds."""

    def damage(self, store: Store, id: ObjectId) -> bool:
        assert isinstance(store, MemoryStore)
        damage(store, id)
        return True

    def lose(self, store: Store, id: ObjectId) -> bool:
        assert isinstance(store, MemoryStore)
        lose(store, id)
        return True


def damage(store: MemoryStore, id: ObjectId) -> None:
    """Change a bit of a shared object, or of the record or segment that brings a node."""
    shared = store._data.shared
    if id in shared:
        shared[id] = flipped(shared[id], -1)
        return
    name, sequence, _ = find_node(store, id)
    space = store._data.spaces[name]
    packed = space.find_segment(sequence)
    if packed is not None:
        changed = bytes(byte ^ 1 for byte in packed.data)  # Each of its blocks.
        space.segments[space.segments.index(packed)] = packed._replace(data=changed)
    else:
        at = sequence - space.tail[0].sequence
        space.tail[at] = space.tail[at]._replace(frame=flipped(space.tail[at].frame, -1))


def lose(store: MemoryStore, id: ObjectId) -> None:
    """Take a shared object out, or put a segment without a node in the place of the one with it."""
    if id in store._data.shared:
        store._data.remove([id])
        return
    name, found = segment_without(store, id)
    segments = store._data.spaces[name].segments
    segments[[one.first for one in segments].index(found.first)] = found
