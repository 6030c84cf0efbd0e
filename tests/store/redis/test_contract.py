"""The contract of stores on real Redis servers, also where it does early what it does late."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ropewalk.store import CachedStore, RedisStore, Store
from ropewalk.testing.helpers import Opener
from ropewalk.tree import ObjectId
from tests.store.redis.contract import EagerRedisStore, RedisContract, relaxed
from tests.store.redis.servers import KEEPS_ALL, Configured, configured


class TestRedisStore(RedisContract):
    @pytest.fixture
    def open_store(self, redis_url: str) -> Opener:
        self.url = redis_url
        return lambda clock: relaxed(redis_url, clock=clock)


class TestRedisStoreThatPacksAtOnce(RedisContract):
    @pytest.fixture
    def open_store(self, redis_url: str) -> Opener:
        self.url = redis_url
        return lambda clock: EagerRedisStore(redis_url, durability="relaxed", clock=clock)


class TestRedisStoreThatKeepsAll(RedisContract):
    """Where every commit is synced."""

    @pytest.fixture(scope="class")
    @classmethod
    def server(cls) -> Iterator[Configured]:
        with configured(KEEPS_ALL) as server:
            yield server

    @pytest.fixture
    def open_store(self, server: Configured) -> Opener:
        server.clear()
        self.url = server.url
        return lambda clock: RedisStore(server.url, clock=clock)


class TestCacheOnRedis(RedisContract):
    @pytest.fixture
    def open_store(self, redis_url: str) -> Opener:
        self.url = redis_url
        return lambda clock: CachedStore(relaxed(redis_url, clock=clock))

    def damage(self, store: Store, id: ObjectId) -> bool:
        assert isinstance(store, CachedStore)
        store.clear()
        return super().damage(store, id)
