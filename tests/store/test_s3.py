"""The store in a bucket keeps the contract on a real server."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ropewalk.store import S3Store, Store
from tests.store.records.contract import CellContract


class TestContract(CellContract):
    @pytest.fixture
    def open_store(self, s3_url: str) -> Callable[[Callable[[], float]], Store]:
        return lambda clock: S3Store(s3_url, clock=clock, poll_seconds=0.05)
