"""The contract of LangGraph's stores on every engine, with real servers."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.base import BaseStore

from holdfast.adapters.langgraph import HoldfastStore
from holdfast.store import FileStore, MemoryStore, PostgresStore, RedisStore, S3Store, SqliteStore
from holdfast.testing import BaseStoreContract
from holdfast.testing._langgraph_stores._base import Opener
from tests.postgres import Postgres

_numbers = itertools.count(1)
MINUTE = 60_000_000


class Suite(BaseStoreContract):
    minutes = 1.0

    def wait(self, store: BaseStore, minutes: float) -> None:
        assert isinstance(store, HoldfastStore)
        before = store._expiry.clock
        store._expiry.clock = lambda: before() + round(minutes * MINUTE)


class TestInMemory(Suite):
    @pytest.fixture
    def open_store(self) -> Opener:
        memory = MemoryStore()

        def open_one(**options: Any) -> BaseStore:
            return HoldfastStore(memory.another(), **options)

        return open_one


class TestOnSqlite(Suite):
    @pytest.fixture
    def open_store(self, memory_folder: Path) -> Opener:
        def open_one(**options: Any) -> BaseStore:
            store = SqliteStore(memory_folder / "store", durability="relaxed")
            return HoldfastStore(store, **options)

        return open_one


class TestOnFiles(Suite):
    @pytest.fixture
    def open_store(self, memory_folder: Path) -> Opener:
        def open_one(**options: Any) -> BaseStore:
            store = FileStore(memory_folder / "store", durability="relaxed")
            return HoldfastStore(store, **options)

        return open_one


class TestOnPostgres(Suite):
    @pytest.fixture
    def open_store(self, postgres: Postgres) -> Opener:
        schema = f"memory_{next(_numbers)}"

        def open_one(**options: Any) -> BaseStore:
            return HoldfastStore(PostgresStore(postgres.url(), schema=schema), **options)

        return open_one


class TestOnRedis(Suite):
    @pytest.fixture
    def open_store(self, redis_url: str) -> Opener:
        def open_one(**options: Any) -> BaseStore:
            return HoldfastStore(RedisStore(redis_url, durability="relaxed"), **options)

        return open_one


@pytest.mark.soak
class TestOnS3(Suite):
    @pytest.fixture
    def open_store(self, s3_url: str) -> Opener:
        def open_one(**options: Any) -> BaseStore:
            return HoldfastStore(S3Store(s3_url, poll_seconds=0.05), **options)

        return open_one
