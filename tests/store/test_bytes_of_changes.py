"""What a small change in a large value takes, wherever in it the changes are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ropewalk import FileStore, SqliteStore
from ropewalk.history import History
from ropewalk.store import KeyValueStore, Store
from ropewalk.testing.helpers import SPACE
from tests.store.key_values import DictKV

COMMITS = 12
"""Fewer than are packed when a store is closed."""


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


Opened = tuple[Callable[[], Store], Callable[[], int]]


@pytest.fixture(params=["sqlite", "files", "key-value"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opened:
    """A function that opens the store, and one that counts its bytes."""
    kept: dict[str, bytes] = {}
    choices: dict[str, Opened] = {
        "sqlite": (lambda: SqliteStore(tmp_path), lambda: folder_bytes(tmp_path)),
        "files": (lambda: FileStore(tmp_path), lambda: folder_bytes(tmp_path)),
        "key-value": (
            lambda: KeyValueStore(DictKV(kept)),
            lambda: sum(map(len, kept.values())),
        ),
    }
    return choices[request.param]


def test_parts_that_change_in_turn_take_what_changed(opened: Opened) -> None:
    open_store, count_bytes = opened
    random = Random(1)
    value: dict[str, list[str]] = {
        name: [random.randbytes(30).hex() for _ in range(120)] for name in ("a", "b", "c")
    }

    def changes() -> Iterator[dict[str, Any]]:
        for number in range(COMMITS):
            value["abc"[number % 3]][60] = random.randbytes(30).hex()
            yield value

    with open_store() as store:
        History(store, SPACE).open().commit(value)
    before = count_bytes()
    with open_store() as store:
        branch = History(store, SPACE).open()
        branch.read()
        for changed in changes():
            branch.commit(changed)
    grown = count_bytes() - before

    # Each part once, which no record of this process holds yet, and changes; in JSON a third more.
    assert grown < 4 / 3 * (3 * 5_000 + COMMITS * 500)
    with open_store() as store:
        assert History(store, SPACE).open().read() == value
