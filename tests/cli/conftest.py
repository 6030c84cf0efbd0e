"""Stores for commands to look at."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ropewalk import Timeline
from tests.cli.support import PAGE, script


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ROPEWALK_STORE", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store that a script of the page has written in another process."""
    folder = tmp_path_factory.mktemp("page")
    script(PAGE, folder)
    return folder


@pytest.fixture
def page(written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, for one test, as the current folder."""
    folder = tmp_path / "page"
    shutil.copytree(written, folder)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder as the current one."""
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def agent(page: Path) -> Iterator[Timeline]:
    """The timeline of the page, for what a test wants to add or see."""
    with Timeline("research-agent", page / ".ropewalk") as timeline:
        yield timeline
