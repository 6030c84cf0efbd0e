"""The contract of stores on the embedded engine, also where it does early what it does late."""

from __future__ import annotations

from pathlib import Path

import pytest

from ropewalk.store import SqliteStore
from ropewalk.store.sqlite import packs
from ropewalk.store.sqlite import store as engine
from ropewalk.testing.helpers import Opener
from tests.store.sqlite.contract import EagerStore, SqliteContract


class TestSqliteStore(SqliteContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Opener:
        return lambda clock: SqliteStore(tmp_path / "store", clock=clock)


class TestSqliteStoreThatPacksAtOnce(SqliteContract):
    @pytest.fixture
    def open_store(self, memory_folder: Path) -> Opener:
        folder = memory_folder / "store"
        return lambda clock: EagerStore(folder, durability="relaxed", clock=clock)


class TestSqliteStoreWithEveryPackAsFile(SqliteContract):
    @pytest.fixture
    def open_store(self, memory_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Opener:
        monkeypatch.setattr(packs, "LARGE", 0)
        folder = memory_folder / "store"
        return lambda clock: SqliteStore(folder, durability="relaxed", clock=clock)


class TestSqliteStoreWhoseIndexCollides(SqliteContract):
    @pytest.fixture
    def open_store(self, memory_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Opener:
        monkeypatch.setattr(engine, "prefix", lambda id: id[0] % 3)
        folder = memory_folder / "store"
        return lambda clock: EagerStore(folder, durability="relaxed", clock=clock)
