"""Checkpointers to be tested, on the engines and with the methods that a test asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from ropewalk.adapters.langgraph import CoherentStore, RopewalkSaver
from tests.frameworks.langgraph.coherent import Open
from tests.frameworks.langgraph.engines import QUICK, local_address, saver_at
from tests.frameworks.langgraph.families import FAMILIES, AsyncFamily

Addresses: TypeAlias = Callable[[str], str]


@pytest.fixture
def address_of(request: pytest.FixtureRequest, memory_folder: Path) -> Addresses:
    """Gives the URL of an empty place for an engine, and starts its server if it has one."""

    def find(engine: str) -> str:
        if engine in ("postgres", "redis", "s3"):
            url: str = request.getfixturevalue(f"{engine}_url")
            return url
        return local_address(engine, memory_folder)

    return find


@pytest.fixture(params=QUICK)
def engine(request: pytest.FixtureRequest) -> str:
    """The engine of a test; a test may name others."""
    name: str = request.param
    return name


@pytest.fixture
def saver(engine: str, address_of: Addresses) -> Iterator[RopewalkSaver]:
    """A checkpointer on an empty store."""
    with saver_at(engine, address_of(engine)) as made:
        yield made


@pytest.fixture(params=FAMILIES)
def either(request: pytest.FixtureRequest, saver: RopewalkSaver) -> Iterator[Any]:
    """The same, whose synchronous methods may be the asynchronous ones in disguise."""
    if request.param == "sync":
        yield saver
        return
    family = AsyncFamily(saver)
    yield family
    family.close()


@pytest.fixture(params=["memory", "sqlite"])
def coherent_store(request: pytest.FixtureRequest, memory_folder: Path) -> Iterator[CoherentStore]:
    """A store that agents share, in the memory of this process and in a store."""
    place = None if request.param == "memory" else memory_folder / "store"
    with CoherentStore(store=place) as made:
        yield made


@pytest.fixture(params=["memory", "sqlite", "ttl"])
def open_store(request: pytest.FixtureRequest, memory_folder: Path) -> Iterator[Open]:
    """Opens stores that agents share: in memory, in a store, and with items that may end."""
    made: list[CoherentStore] = []

    def one(**options: Any) -> CoherentStore:
        if request.param == "sqlite":
            options["store"] = memory_folder / "store"
        elif request.param == "ttl":
            options["ttl"] = {}
        made.append(CoherentStore(**options))
        return made[-1]

    yield one
    for store in made:
        store.close()
