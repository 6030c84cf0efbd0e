"""The contract, on a key-value store that a user brings."""

from __future__ import annotations

import pytest

from ropewalk.store import KeyValueStore
from ropewalk.testing import KVStoreContract
from ropewalk.testing.helpers import Opener
from ropewalk.testing.key_values import KVOpener
from tests.store.key_values import DictKV, KeptKV
from tests.store.records.contract import CellContract, EagerKeyValueStore


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


class TestStoreOnADict(CellContract):
    @pytest.fixture
    def open_store(self) -> Opener:
        data: dict[str, bytes] = {}
        return lambda clock: KeyValueStore(DictKV(data), clock=clock)


class TestStoreOnAKeyValueStoreThatKeeps(CellContract):
    @pytest.fixture
    def open_store(self) -> Opener:
        data: dict[str, bytes] = {}
        return lambda clock: KeyValueStore(KeptKV(data), clock=clock)


class TestStoreThatPacksAtOnce(CellContract):
    @pytest.fixture
    def open_store(self) -> Opener:
        data: dict[str, bytes] = {}
        return lambda clock: EagerKeyValueStore(KeptKV(data), clock=clock)
