"""Every test of a state runs on each engine that is in the box."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from holdfast.state import Versioned
from holdfast.store import FileStore, MemoryStore, SqliteStore, Store

Opener: TypeAlias = Callable[[], Store]
StateOpener: TypeAlias = Callable[..., Versioned]

ENGINES: dict[str, type[FileStore | SqliteStore] | None] = {
    "memory": None,
    "sqlite": SqliteStore,
    "files": FileStore,
}


@pytest.fixture(params=list(ENGINES))
def open_store(request: pytest.FixtureRequest, memory_folder: Path) -> Iterator[Opener]:
    """Opens one more store object on the data of the running test."""
    memory = MemoryStore()
    opened: list[Store] = [memory]

    def open_one() -> Store:
        engine = ENGINES[request.param]
        where = memory_folder / "store"
        store = engine(where, durability="relaxed") if engine else memory.another()
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: Opener) -> Store:
    return open_store()


@pytest.fixture
def open_state(open_store: Opener) -> StateOpener:
    """Opens one more handle, on a store object of its own, as another process would."""

    def open_one(**options: Any) -> Versioned:
        return Versioned(open_store(), **options)

    return open_one


@pytest.fixture
def state(store: Store) -> Versioned:
    return Versioned(store)
