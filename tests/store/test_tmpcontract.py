import pytest

from ropewalk.store import SqliteStore
from ropewalk.testing import StoreContract


class TestSqlite(StoreContract):
    @pytest.fixture
    def open_store(self, tmp_path):
        return lambda clock: SqliteStore(tmp_path / "s", clock=clock, durability="relaxed")
