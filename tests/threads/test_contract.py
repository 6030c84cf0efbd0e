"""The contract of conversations on every engine, with real servers."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from ropewalk.store import FileStore, MemoryStore, PostgresStore, RedisStore, S3Store, SqliteStore
from ropewalk.testing import ThreadContract
from ropewalk.testing.threads.faces import Opener
from ropewalk.threads import ThreadCheckpointer
from tests.postgres import Postgres

_numbers = itertools.count(1)


class TestInMemory(ThreadContract):
    shares_cache = False

    @pytest.fixture
    def open_checkpointer(self) -> Opener:
        memory = MemoryStore()

        def open_one(**options: Any) -> ThreadCheckpointer[Any]:
            return ThreadCheckpointer(memory.another(), **options)

        return open_one


class TestOnSqlite(ThreadContract):
    @pytest.fixture
    def open_checkpointer(self, memory_folder: Path) -> Opener:
        def open_one(**options: Any) -> ThreadCheckpointer[Any]:
            store = SqliteStore(memory_folder / "store", durability="relaxed")
            return ThreadCheckpointer(store, **options)

        return open_one


class TestOnFiles(ThreadContract):
    shares_cache = False

    @pytest.fixture
    def open_checkpointer(self, memory_folder: Path) -> Opener:
        def open_one(**options: Any) -> ThreadCheckpointer[Any]:
            store = FileStore(memory_folder / "store", durability="relaxed")
            return ThreadCheckpointer(store, **options)

        return open_one


class TestOnPostgres(ThreadContract):
    @pytest.fixture
    def open_checkpointer(self, postgres: Postgres) -> Opener:
        schema = f"threads_{next(_numbers)}"

        def open_one(**options: Any) -> ThreadCheckpointer[Any]:
            return ThreadCheckpointer(PostgresStore(postgres.url(), schema=schema), **options)

        return open_one


class TestOnRedis(ThreadContract):
    @pytest.fixture
    def open_checkpointer(self, redis_url: str) -> Opener:
        def open_one(**options: Any) -> ThreadCheckpointer[Any]:
            return ThreadCheckpointer(RedisStore(redis_url, durability="relaxed"), **options)

        return open_one


@pytest.mark.soak
class TestOnS3(ThreadContract):
    shares_cache = False

    @pytest.fixture
    def open_checkpointer(self, s3_url: str) -> Opener:
        def open_one(**options: Any) -> ThreadCheckpointer[Any]:
            return ThreadCheckpointer(S3Store(s3_url, poll_seconds=0.05), **options)

        return open_one
