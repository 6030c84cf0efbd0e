"""The contract of stores on plain files, also where they do early what they do late."""

from __future__ import annotations

from pathlib import Path

import pytest

from ropewalk.store import FileStore
from ropewalk.testing.helpers import Opener
from tests.store.files.contract import EagerFileStore, FileContract


class TestFileStore(FileContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Opener:
        return lambda clock: FileStore(tmp_path / "store", clock=clock)


class TestRelaxedFileStoreThatPacksAtOnce(FileContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Opener:
        folder = tmp_path / "store"
        return lambda clock: EagerFileStore(folder, durability="relaxed", clock=clock)
