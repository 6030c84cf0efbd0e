"""Every test of a state runs on each engine that is in the box."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from ropewalk.state import Versioned
from ropewalk.store import Store
from tests.engines import ENGINES, Opener, opening

StateOpener: TypeAlias = Callable[..., Versioned]


@pytest.fixture(params=list(ENGINES))
def open_store(request: pytest.FixtureRequest, memory_folder: Path) -> Iterator[Opener]:
    """Opens one more store object on the data of the running test."""
    with opening(request.param, memory_folder) as opener:
        yield opener


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
