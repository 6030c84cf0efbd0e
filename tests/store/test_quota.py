"""A size limit: what nothing reaches goes first, then the store is full and stays usable."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from ropewalk.errors import InvalidInput, StoreFull
from ropewalk.history import History
from ropewalk.store import FileStore, MemoryStore, SqliteStore, Store

LIMIT = 600_000
SPACE = "test/room"


@pytest.fixture(params=[MemoryStore, FileStore, SqliteStore])
def open_limited(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[int], Store]:
    def opened(limit: int) -> Store:
        if request.param is MemoryStore:
            return MemoryStore(size_limit=limit)
        store: Store = request.param(tmp_path / "store", size_limit=limit)
        return store

    return opened


def state(number: int) -> dict[str, str]:
    """About 50 KB that do not compress much."""
    choose = random.Random(number)
    return {f"part {at}": choose.randbytes(5000).hex() for at in range(10)}


def fill(history: History, branch: str, first: int = 0) -> int:
    """Commit until the store is full; how many commits there was room for."""
    handle = history.open(branch)
    for done in range(100):
        try:
            handle.commit(state(first + done))
        except StoreFull:
            return done
    raise AssertionError("there is no limit")


def test_a_full_store_says_so_and_can_be_read(open_limited: Callable[[int], Store]) -> None:
    with open_limited(LIMIT) as store:
        history = History(store, SPACE)
        done = fill(history, "main")

        assert done >= 3
        assert history.value() == state(done - 1)
        assert len(list(history.steps())) == done
        assert store.check(read_data=True).ok
        history.create_tag("still usable")
        with pytest.raises(StoreFull, match=f"size_limit of {LIMIT}"):
            history.open().commit(state(99))


def test_what_nothing_reaches_makes_room_for_what_comes(
    open_limited: Callable[[int], Store],
) -> None:
    with open_limited(LIMIT) as store:
        history = History(store, SPACE)
        fill(history, "main")
        history.delete_branch("main")
        history.open("other").commit({"small": 1})

        again = fill(history, "next", first=1000)

        assert again >= 3
        assert sorted(history.branches()) == ["next", "other"]
        assert history.value("next") == state(1000 + again - 1)
        assert store.check(read_data=True).ok


@pytest.mark.parametrize("limit", [0, -5, True, 1.5, "1 GB"])
def test_a_limit_is_a_number_of_bytes(limit: int) -> None:
    with pytest.raises(InvalidInput, match="size_limit"):
        MemoryStore(size_limit=limit)
