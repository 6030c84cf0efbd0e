"""Backends to be tested, on the engines that a test asks for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import ropewalk
from ropewalk.adapters.deepagents import RopewalkBackend
from ropewalk.store import Store

ENGINES = ("memory", "sqlite", "files", "postgres", "redis", "s3")


@pytest.fixture(params=ENGINES)
def any_store(request: pytest.FixtureRequest, memory_folder: Path) -> Iterator[Store]:
    """An empty store on each engine."""
    place = memory_folder / "store"
    url = {"memory": "memory://", "sqlite": str(place), "files": f"file://{place}"}.get(
        request.param
    ) or request.getfixturevalue(f"{request.param}_url")
    # The server of the tests syncs nothing.
    with ropewalk.open(url, durability="relaxed" if request.param == "redis" else None) as store:
        yield store


@pytest.fixture
def backend() -> Iterator[RopewalkBackend]:
    """An empty file system in memory."""
    with ropewalk.MemoryStore() as store:
        yield RopewalkBackend(store)
