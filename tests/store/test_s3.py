"""The store in a bucket keeps the contract on a real server."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.store import S3Store, Store
from holdfast.store._s3_cells import PACKS
from holdfast.testing import StoreContract
from holdfast.tree import ObjectId


class TestContract(StoreContract):
    @pytest.fixture
    def open_store(self, s3_url: str) -> Callable[[Callable[[], float]], Store]:
        return lambda clock: S3Store(s3_url, clock=clock, poll_seconds=0.05)

    def damage(self, store: Store, id: ObjectId) -> bool:
        assert isinstance(store, S3Store)
        damage(store, id)
        return True


def damage(store: S3Store, id: ObjectId) -> None:
    """Change a byte of an object in its pack."""
    for copy in store._index.copies(id):
        found = store._bucket.get(f"{PACKS}/{copy.pack}")
        assert found is not None
        data = bytearray(found.data)
        data[copy.row.offset + copy.row.length - 1] ^= 1
        store._bucket.put(f"{PACKS}/{copy.pack}", bytes(data))
    store._index.clear()
