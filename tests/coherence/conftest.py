"""What the tests of coherence share: sets of artifacts on every engine."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import ropewalk
from ropewalk.coherence import CoherenceCore
from ropewalk.store import MemoryStore, Store
from tests.coherence.outages import World
from tests.coherence.runs import Run

OpenCore: TypeAlias = Callable[..., CoherenceCore]

ENGINES = ("local", "memory", "sqlite", "files", "postgres", "redis", "s3")


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """The name of an engine; `local` is none, the memory of this process."""
    return str(request.param)


@pytest.fixture
def open_store(
    engine: str, request: pytest.FixtureRequest, memory_folder: Path
) -> Iterator[Callable[[], Store | None]]:
    """Another store object on the same data, as another process would have."""
    memory, opened = MemoryStore(), []
    urls = {"postgres": "postgres_url", "redis": "redis_url", "s3": "s3_url"}
    url = request.getfixturevalue(urls[engine]) if engine in urls else ""

    def open_one() -> Store | None:
        if engine == "local":
            return None
        if engine == "memory":
            store: Store = memory.another()
        elif engine == "sqlite":
            store = ropewalk.SqliteStore(memory_folder / "store", durability="relaxed")
        elif engine == "files":
            store = ropewalk.FileStore(memory_folder / "files", durability="relaxed")
        else:
            store = ropewalk.open(url + ("?durability=relaxed" if engine == "redis" else ""))
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def open_core(open_store: Callable[[], Store | None]) -> Iterator[OpenCore]:
    """Another client of the same artifacts; without a store it is one of its own."""
    name, opened = uuid.uuid4().hex, []

    def open_one(**options: Any) -> CoherenceCore:
        core = CoherenceCore(open_store(), **{"name": name, **options})
        opened.append(core)
        return core

    yield open_one
    for core in opened:
        core.close()


@pytest.fixture
def core(open_core: OpenCore) -> CoherenceCore:
    """A client."""
    return open_core()


OpenWorld: TypeAlias = Callable[..., World]


@pytest.fixture
def open_world() -> Iterator[OpenWorld]:
    """Makes engines that can be away, each with two clients."""
    opened: list[World] = []

    def open_one(**options: Any) -> World:
        opened.append(World(**options))
        return opened[-1]

    yield open_one
    for made in opened:
        made.store.away = made.store.silent = False
        made.core.close()
        made.other.close()


@pytest.fixture
def world(open_world: OpenWorld) -> World:
    """An engine that can be away, with two clients."""
    return open_world()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """The logs of one process, to be written by hand."""
    return Run(tmp_path / "run")
