"""The contract, on a key-value store that a user brings."""

from __future__ import annotations

import pytest

from ropewalk.store import KeyValueStore, Store
from ropewalk.store._key_value_cells import object_key
from ropewalk.testing import KVStoreContract, ObjectStoreContract
from ropewalk.testing._key_values import KVOpener
from ropewalk.testing._stores._base import Opener
from ropewalk.tree import ObjectId
from tests.store.key_values import DictKV, KeptKV


class TestDict(KVStoreContract):
    @pytest.fixture
    def open_kv(self) -> KVOpener:
        data: dict[str, bytes] = {}
        return lambda: DictKV(data)


class TestDictThatKeeps(KVStoreContract):
    @pytest.fixture
    def open_kv(self) -> KVOpener:
        data: dict[str, bytes] = {}
        return lambda: KeptKV(data)


class KeyValueStoreContract(ObjectStoreContract):
    """The contract, with a way to damage what is stored."""

    def damage(self, store: Store, id: ObjectId) -> bool:
        assert isinstance(store, KeyValueStore)
        stored = bytearray(store.kv.get(object_key(id)) or b"")
        stored[-1] ^= 1
        store.kv.set(object_key(id), bytes(stored))
        return True


class TestStoreOnADict(KeyValueStoreContract):
    @pytest.fixture
    def open_store(self) -> Opener:
        data: dict[str, bytes] = {}
        return lambda clock: KeyValueStore(DictKV(data), clock=clock)


class TestStoreOnAKeyValueStoreThatKeeps(KeyValueStoreContract):
    @pytest.fixture
    def open_store(self) -> Opener:
        data: dict[str, bytes] = {}
        return lambda clock: KeyValueStore(KeptKV(data), clock=clock)
