"""The contract of LangGraph's stores on every engine, with real servers."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from langgraph.store.base import BaseStore

from ropewalk.adapters.langgraph import RopewalkStore
from ropewalk.store import (
    FileStore,
    MemoryStore,
    PostgresStore,
    RedisStore,
    S3Store,
    SqliteStore,
    Store,
)
from ropewalk.testing import BaseStoreContract
from ropewalk.testing.langgraph_stores.base import Opener
from tests.conftest import SOAK
from tests.postgres import Postgres

Maker: TypeAlias = Callable[[], Store]

_numbers = itertools.count(1)
MINUTE = 60_000_000


class Suite(BaseStoreContract):
    minutes = 1.0

    def wait(self, store: BaseStore, minutes: float) -> None:
        assert isinstance(store, RopewalkStore)
        before = store._expiry.clock
        store._expiry.clock = lambda: before() + round(minutes * MINUTE)

    @pytest.fixture
    def open_store(self, make_store: Maker) -> Iterator[Opener]:
        stores: list[Store] = []

        def open_one(**options: Any) -> BaseStore:
            stores.append(make_store())
            return RopewalkStore(stores[-1], **options)

        yield open_one
        for store in stores:
            store.close()


class TestInMemory(Suite):
    @pytest.fixture
    def make_store(self) -> Maker:
        return MemoryStore().another


class TestOnSqlite(Suite):
    @pytest.fixture
    def make_store(self, memory_folder: Path) -> Maker:
        return lambda: SqliteStore(memory_folder / "store", durability="relaxed")


class Slice(Suite):
    """One face is enough for an engine whose store is the same beneath both."""

    if not SOAK:

        @pytest.fixture
        def runner(self) -> Iterator[asyncio.Runner | None]:
            with asyncio.Runner() as runner:
                yield runner


class TestOnFiles(Slice):
    @pytest.fixture
    def make_store(self, memory_folder: Path) -> Maker:
        return lambda: FileStore(memory_folder / "store", durability="relaxed")


class TestOnPostgres(Slice):
    @pytest.fixture
    def make_store(self, postgres: Postgres) -> Maker:
        schema = f"memory_{next(_numbers)}"
        return lambda: PostgresStore(postgres.url(), schema=schema)


class TestOnRedis(Slice):
    @pytest.fixture
    def make_store(self, redis_url: str) -> Maker:
        return lambda: RedisStore(redis_url, durability="relaxed")


@pytest.mark.soak
class TestOnS3(Suite):
    @pytest.fixture
    def make_store(self, s3_url: str) -> Maker:
        return lambda: S3Store(s3_url, poll_seconds=0.05)
