"""Every test here runs on each engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ropewalk.history import Branch, History
from ropewalk.store import Store, space_name
from tests.engines import ENGINES, Opener, opening

SPACE = space_name("test", "agent")


@pytest.fixture(params=list(ENGINES))
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """Opens one more store object on the data of the running test."""
    with opening(request.param, tmp_path) as opener:
        yield opener


@pytest.fixture
def store(open_store: Opener) -> Store:
    return open_store()


@pytest.fixture
def history(store: Store) -> History:
    return History(store, SPACE, agent="researcher")


@pytest.fixture
def main(history: History) -> Branch:
    return history.open()
