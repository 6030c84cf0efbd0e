"""The contract, on the store in memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ropewalk.store import MemoryStore, Move, Store, space_name
from ropewalk.store.engine import Capabilities
from ropewalk.testing.helpers import MAIN, SPACE, Opener, noise, value
from tests.store.memory import MemoryContract


class TestMemoryStore(MemoryContract):
    @pytest.fixture
    def open_store(self) -> Opener:
        first = MemoryStore()
        return lambda clock: first.another(clock=clock)


class KeptStore(MemoryStore):
    """As if memory were kept: opened again, it is still there."""

    capabilities = Capabilities(persists=True, shared=False, wakes=False)
    poll_seconds = 0.001

    def _subscribe(self, space: str, wake: Callable[[], None]) -> Callable[[], None]:
        return lambda: None


class TestStoreThatKeepsAndPolls(MemoryContract):
    @pytest.fixture
    def open_store(self) -> Opener:
        kept = MemoryStore()

        def open_again(clock: Callable[[], float]) -> Store:
            store = KeptStore(clock=clock)
            store._data = kept._data
            return store

        return open_again


class TestStoreWithOneHandle(MemoryContract):
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
    store.commit(SPACE, many, moves=[Move(MAIN, None, many[0].id)])
    full = store.sizes
    assert full.objects == 10
    assert full.stored_bytes == full.written_bytes
    assert 10_000 < full.stored_bytes < 10_500

    store.gc(recent=0)

    left = store.sizes
    assert left.objects == 1
    assert 1000 < left.stored_bytes < 1500
    assert left.written_bytes == full.written_bytes


def test_stores_in_memory_are_apart_unless_asked() -> None:
    store = MemoryStore(backend_id="mine", backend_aliases=["old name"])
    store.commit(SPACE)

    assert MemoryStore().spaces() == []
    assert store.another().spaces() == [SPACE]
    assert store.another().answers_to("old name")
    assert store.header.store_id != MemoryStore().header.store_id
    assert space_name("a", "b") not in store.spaces()
