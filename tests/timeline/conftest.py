"""A timeline on each engine, and a way to open it again as another process would."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from holdfast.store import FileStore, MemoryStore, SqliteStore, Store
from holdfast.timeline import Timeline

Opener: TypeAlias = Callable[..., Timeline]

NAME = "agent"


@pytest.fixture(params=["memory", "sqlite", "files"])
def open_timeline(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """Opens the test's timeline, each time on a store object of its own."""
    memory = MemoryStore()
    opened: list[Store] = [memory]

    def another() -> Store:
        if request.param == "memory":
            return memory.another()
        engine = SqliteStore if request.param == "sqlite" else FileStore
        return engine(tmp_path / "store", durability="relaxed")

    def open(name: str = NAME, **options: object) -> Timeline:
        store = another()
        opened.append(store)
        return Timeline(name, store, **options)  # type: ignore[arg-type]

    yield open
    for store in opened:
        store.close()


@pytest.fixture
def agent(open_timeline: Opener) -> Timeline:
    """A timeline that has nothing yet."""
    return open_timeline()
