"""Every test here runs on each engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from holdfast.history import Branch, History
from holdfast.store import FileStore, MemoryStore, SqliteStore, Store, space_name

Opener: TypeAlias = Callable[[], Store]

SPACE = space_name("test", "agent")
ENGINES: dict[str, type[FileStore | SqliteStore] | None] = {
    "memory": None,
    "sqlite": SqliteStore,
    "files": FileStore,
}


@pytest.fixture(params=list(ENGINES))
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """Opens one more store object on the data of the running test."""
    memory = MemoryStore()
    opened: list[Store] = [memory]

    def open_one() -> Store:
        engine = ENGINES[request.param]
        where = tmp_path / "store"
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
def history(store: Store) -> History:
    return History(store, SPACE, agent="researcher")


@pytest.fixture
def main(history: History) -> Branch:
    return history.open()
