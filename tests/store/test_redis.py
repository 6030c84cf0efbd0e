"""The contract on a real Redis server."""

from __future__ import annotations

import pytest

from holdfast.store import RedisStore, Store
from holdfast.testing import StoreContract
from holdfast.testing._stores._base import Opener
from holdfast.tree import ObjectId


class TestRedisStore(StoreContract):
    @pytest.fixture
    def open_store(self, redis_url: str) -> Opener:
        return lambda clock: RedisStore(redis_url, durability="relaxed", clock=clock)

    def damage(self, store: Store, id: ObjectId) -> bool:
        assert isinstance(store, RedisStore)
        frame = store._server.ask("HGET", "{holdfast:default}:frames", id)
        changed = frame[:-1] + bytes([frame[-1] ^ 1])
        store._server.ask("HSET", "{holdfast:default}:frames", id, changed)
        return True
