"""The store in a bucket keeps the contract on a real server."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ropewalk.history import History
from ropewalk.store import S3Store, Store
from ropewalk.store._s3_cells import PACKS
from ropewalk.testing import ObjectStoreContract
from ropewalk.testing._stores._base import SPACE
from ropewalk.tree import ObjectId


class TestContract(ObjectStoreContract):
    @pytest.fixture
    def open_store(self, s3_url: str) -> Callable[[Callable[[], float]], Store]:
        return lambda clock: S3Store(s3_url, clock=clock, poll_seconds=0.05)

    def damage(self, store: Store, id: ObjectId) -> bool:
        assert isinstance(store, S3Store)
        damage(store, id)
        return True


def test_a_copy_with_packs_last_is_whole_although_others_write(s3_url: str) -> None:
    place = s3_url.replace("?", "/copied?")
    with S3Store(s3_url) as store, S3Store(place) as copy:
        branch = History(store, SPACE).open()
        for number in range(20):
            branch.commit({"number": number})

        for folder in ("refs", "space", "refs", "log", "catalog", "index", "header", "pack"):
            for key, _ in store._bucket.listing("ropewalk"):
                if key.split("/")[1] != folder:
                    continue
                found = store._bucket.get(key)
                assert found is not None
                copy._bucket.put(key, found.data)
            for number in range(20):
                branch.commit({"number": number, "after": folder})

    with S3Store(place, create=False) as restored:
        assert restored.header == store.header
        assert restored.check(read_data=True).problems == ()
        assert History(restored, SPACE).value() == {"number": 19, "after": "refs"}


def damage(store: S3Store, id: ObjectId) -> None:
    """Change a byte of an object in its pack."""
    for copy in store._index.copies(id):
        found = store._bucket.get(f"{PACKS}/{copy.pack}")
        assert found is not None
        data = bytearray(found.data)
        data[copy.row.offset + copy.row.length - 1] ^= 1
        store._bucket.put(f"{PACKS}/{copy.pack}", bytes(data))
    store._index.clear()
