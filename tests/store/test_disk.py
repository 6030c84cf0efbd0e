"""`Memory`, `Disk` and `Cache`: names for stores, and what a limit means."""

from __future__ import annotations

from pathlib import Path

import pytest

import ropewalk
from ropewalk import CachedStore, MemoryStore, SqliteStore
from ropewalk.compat import Cache, Disk, Memory
from ropewalk.errors import InvalidInput, StoreFull
from ropewalk.history import Commit, History
from ropewalk.testing.helpers import SPACE, noise

LIMIT = 400_000


def test_the_names_are_names_and_no_second_classes(tmp_path: Path) -> None:
    assert Memory is MemoryStore
    assert Cache is CachedStore
    with Disk(tmp_path / "s") as store:
        assert type(store) is SqliteStore


def test_a_disk_has_a_limit_of_one_gib_unless_told_otherwise(tmp_path: Path) -> None:
    limits: list[int | None] = []
    for options in ((), (500,), (None,)):
        with Disk(tmp_path / "s", *options) as store:
            limits.append(store.size_limit)
    with Disk(str(tmp_path / "s"), size_limit=7) as store:
        limits.append(store.size_limit)

    assert limits == [1024**3, 500, None, 7]


def test_a_limit_is_a_number_of_bytes(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="size_limit"):
        Disk(tmp_path / "s", size_limit=0)


def test_a_disk_is_the_store_that_a_path_opens(tmp_path: Path) -> None:
    with Disk(tmp_path / "s") as store:
        made = store.header.store_id

    with ropewalk.open(tmp_path / "s") as opened:
        assert opened.header.store_id == made


def fill(history: History) -> list[Commit]:
    """Commit until there is no room; what was acknowledged."""
    branch = history.open()
    done: list[Commit] = []
    while True:
        try:
            done.append(branch.commit(state(len(done))))
        except StoreFull:
            return done


def state(step: int) -> dict[str, object]:
    return {"step": step, "keep": "live", "data": noise(20_000, step)}


@pytest.mark.parametrize("cached", [False, True])
def test_at_the_limit_a_commit_is_refused_and_nothing_is_lost(tmp_path: Path, cached: bool) -> None:
    disk: ropewalk.Store = Disk(tmp_path / "s", size_limit=LIMIT)
    with Cache(disk) if cached else disk as store:
        history = History(store, SPACE)
        done = fill(history)
        assert len(done) > 10

        for attempt in range(3):  # Being refused again changes nothing either.
            with pytest.raises(StoreFull, match="Nothing was written"):
                history.open().commit({"data": noise(30_000, 10_000 + attempt)})
            for step, commit in enumerate(done):
                assert history.value(commit) == state(step)

    with Disk(tmp_path / "s", size_limit=LIMIT) as again:
        history = History(again, SPACE)
        assert history.value()["step"] == len(done) - 1
        assert [one.id for one in history.steps()] == [one.id for one in reversed(done)]
        assert again.check(read_data=True).ok


def test_with_a_higher_limit_a_full_store_goes_on(tmp_path: Path) -> None:
    with Disk(tmp_path / "s", size_limit=LIMIT) as store:
        done = fill(History(store, SPACE))

    with Disk(tmp_path / "s", size_limit=2 * LIMIT) as store:
        branch = History(store, SPACE).open()
        branch.read()
        more = branch.commit({"step": "more", "data": noise(30_000, 5)})

        assert more.generation == len(done) + 1
