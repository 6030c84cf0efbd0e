"""The contract of LangGraph's stores, kept by `CoherentStore`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.base import BaseStore

from ropewalk.adapters.langgraph import CoherentStore
from ropewalk.store import MemoryStore
from ropewalk.testing import BaseStoreContract
from ropewalk.testing.langgraph_stores.base import Opener
from tests.frameworks.langgraph.coherent import pass_time


class TestInOneProcess(BaseStoreContract):
    reopens = False
    has_ttl = False
    has_vectors = False

    @pytest.fixture
    def open_store(self) -> Opener:
        return lambda **options: CoherentStore(identity="config", **options)


class OnEngine(BaseStoreContract):
    """Artifacts in a store, without values that end or are searched by meaning."""

    has_ttl = False
    has_vectors = False

    @pytest.fixture
    def runner(self) -> Iterator[asyncio.Runner | None]:
        """One face is enough where the store is the same beneath both."""
        with asyncio.Runner() as runner:
            yield runner

    @pytest.fixture
    def open_store(self, place: str) -> Opener:
        return lambda **options: CoherentStore(identity="config", store=place, **options)


class TestOnSqlite(OnEngine):
    @pytest.fixture
    def place(self, memory_folder: Path) -> str:
        return str(memory_folder / "store")


@pytest.mark.soak
class TestOnPostgres(OnEngine):
    @pytest.fixture
    def place(self, postgres_url: str) -> str:
        return postgres_url


@pytest.mark.soak
class TestOnRedis(OnEngine):
    @pytest.fixture
    def place(self, redis_url: str) -> str:
        return f"{redis_url}?durability=relaxed"


class TestWithIndexAndTtl(BaseStoreContract):
    """Items that end and are searched by meaning."""

    minutes = 1.0

    def wait(self, store: BaseStore, minutes: float) -> None:
        assert isinstance(store, CoherentStore)
        pass_time(store, minutes)

    @pytest.fixture
    def open_store(self) -> Opener:
        shared = MemoryStore()

        def open_one(index: Any = None, ttl: Any = None) -> BaseStore:
            ttl = ttl or {"refresh_on_read": True}
            return CoherentStore(identity="config", store=shared, index=index, ttl=ttl)

        return open_one
