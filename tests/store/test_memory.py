"""The contract, on the store in memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ropewalk.store import Capabilities, MemoryStore, Store, space_name
from ropewalk.testing import ObjectStoreContract
from ropewalk.testing._stores._base import SPACE, Opener, growing, noise, value
from ropewalk.tree import ObjectId


class TestMemoryStore(ObjectStoreContract):
    @pytest.fixture
    def open_store(self) -> Opener:
        first = MemoryStore()
        return lambda clock: first.another(clock=clock)

    def damage(self, store: Store, id: ObjectId) -> bool:
        assert isinstance(store, MemoryStore)
        data = store._data
        place = data.index[id]
        pack = bytearray(data.packs[place.pack])
        pack[place.offset + place.length - 1] ^= 1
        data.packs[place.pack] = bytes(pack)
        return True


class KeptStore(MemoryStore):
    """As if memory were kept: opened again, it is still there."""

    capabilities = Capabilities(persists=True, shared=False, wakes=False)
    poll_seconds = 0.001

    def _subscribe(self, space: str, wake: Callable[[], None]) -> Callable[[], None]:
        return lambda: None


class TestStoreThatKeepsAndPolls(ObjectStoreContract):
    @pytest.fixture
    def open_store(self) -> Opener:
        kept = MemoryStore()

        def open_again(clock: Callable[[], float]) -> Store:
            store = KeptStore(clock=clock)
            store._data = kept._data
            return store

        return open_again


class TestStoreWithOneHandle(ObjectStoreContract):
    several_handles = False

    @pytest.fixture
    def open_store(self) -> Opener:
        opened: list[Store] = []

        def open_once(clock: Callable[[], float]) -> Store:
            assert not opened
            opened.append(MemoryStore(clock=clock))
            return opened[0]

        return open_once


def test_sizes_tell_what_is_held_and_what_was_written() -> None:
    store = MemoryStore()
    many = [value(noise(1000, number)) for number in range(10)]
    store.commit(SPACE, many)
    full = store.sizes
    assert (full.objects, full.packs) == (10, 1)
    assert full.frame_bytes == full.pack_bytes == full.written_bytes
    assert 10_000 < full.frame_bytes < 10_200

    doomed = [one.id for one in many[1:]]
    store.condemn(doomed)
    store.delete(doomed)

    left = store.sizes
    assert (left.objects, left.packs) == (1, 1)
    assert left.pack_bytes == left.frame_bytes == full.frame_bytes // 10
    assert left.written_bytes == full.written_bytes


def test_a_version_costs_what_it_adds() -> None:
    store = MemoryStore()
    versions = growing(50, size=4000)
    for version in versions:
        store.commit(SPACE, [version])

    assert store.sizes.written_bytes < 2.5 * len(versions[-1].payload)


def test_stores_in_memory_are_apart_unless_asked() -> None:
    store = MemoryStore(backend_id="mine", backend_aliases=["old name"])
    store.commit(SPACE)

    assert MemoryStore().spaces() == []
    assert store.another().spaces() == [SPACE]
    assert store.another().answers_to("old name")
    assert store.header.store_id != MemoryStore().header.store_id
    assert space_name("a", "b") not in store.spaces()
