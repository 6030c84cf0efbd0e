"""A timeline on each engine, and a way to open it again as another process would."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from ropewalk.timeline import Timeline
from tests.engines import ENGINES, opening

Opener: TypeAlias = Callable[..., Timeline]

NAME = "agent"


@pytest.fixture(params=list(ENGINES))
def open_timeline(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """Opens the test's timeline, each time on a store object of its own."""

    def open(name: str = NAME, **options: object) -> Timeline:
        return Timeline(name, another(), **options)  # type: ignore[arg-type]

    with opening(request.param, tmp_path) as another:
        yield open


@pytest.fixture
def agent(open_timeline: Opener) -> Timeline:
    """A timeline that has nothing yet."""
    return open_timeline()
