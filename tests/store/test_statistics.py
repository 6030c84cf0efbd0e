"""The cost of statistics: each record is read a few times at most, however much is shared."""

from __future__ import annotations

import random
import tracemalloc
from collections import Counter
from pathlib import Path

import pytest

from ropewalk.history import History
from ropewalk.store import MemoryStore, SqliteStore, Store
from ropewalk.store.record import Row
from ropewalk.store.segment import Packed
from ropewalk.tree import Kind, ObjectId, links


class CountingStore(MemoryStore):
    """Counts how often each record is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[tuple[str, int]] = Counter()

    def _load(self, space: str, sequence: int) -> list[Row] | Packed | None:
        self.asked[space, sequence] += 1
        return super()._load(space, sequence)


def filled(versions: int) -> CountingStore:
    """Two spaces and several branches that share their history."""
    store = CountingStore()
    for space in ("team/one", "team/two"):
        history = History(store, space)
        branch = history.open()
        for turn in range(versions):
            branch.commit({"turn": turn, f"note {turn % 7}": f"{turn} " * 800})
            if turn % 10 == 0:
                history.create_branch(f"at {turn}")
    return store


def test_a_record_is_read_twice_at_most() -> None:
    for versions in (20, 200):
        store = filled(versions)
        store.asked.clear()

        found = store.stats()

        assert found.reached == found.stored
        assert max(store.asked.values()) == 2


def test_progress_is_told() -> None:
    told: list[str] = []

    filled(3).stats(progress=lambda step, done: told.append(step))

    assert "reading" in told


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_a_log_of_records_is_counted_as_a_walk_would(
    tmp_path: Path, seed: int, packed: bool
) -> None:
    with SqliteStore(tmp_path / "store", durability="relaxed") as store:
        history = History(store, "team/one")
        make_branches(history, random.Random(seed))
        if packed:
            store.gc()
        sizes = {one.id: one.stored for one in store.scan()}
        commits = {one.id for one in store.scan() if one.kind == Kind.COMMIT}
        reached = {ref.name: walked(store, ref.target) for ref in store.refs("team/one")}

        found = store.stats()

    (space,) = found.spaces
    every = set().union(*reached.values())
    for ref in space.refs:
        others = set().union(*[ids for name, ids in reached.items() if name != ref.name])
        mine = reached[ref.name]
        assert ref.stored == sum(sizes[id] for id in mine)
        assert ref.alone == sum(sizes[id] for id in mine - others)
    assert (space.objects, space.stored) == (len(every), sum(sizes[id] for id in every))
    assert found.commits == space.commits == len(commits & every)
    assert space.stored == space.alone == found.reached == sum(row.stored for row in space.keys)
    assert (found.objects, found.stored) == (len(sizes), sum(sizes.values()))
    assert {row.key for row in space.keys if row.kind == "key"} >= {"turn", "text"}


def make_branches(history: History, choose: random.Random) -> None:
    """Versions of several states, small and large, and branches that were removed."""
    handle = history.open()
    state: dict[str, object] = {"turn": 0, "text": ""}
    for turn in range(40):
        state = {**state, "turn": turn, f"key {turn % 5}": choose.randbytes(choose.randrange(900))}
        if turn % 9 == 0:
            state["text"] = choose.randbytes(40_000).hex()
        handle.commit(state, metadata={"cost": turn} if turn % 4 == 0 else None)
        if turn % 11 == 5:
            history.create_branch(f"at {turn}")
    history.delete_branch("at 5")
    history.open("at 16").commit({"turn": -1, "text": "other"})


def walked(store: Store, root: ObjectId) -> set[ObjectId]:
    read, found, pending = store.reader("team/one"), set[ObjectId](), [root]
    while pending:
        id = pending.pop()
        if id not in found:
            found.add(id)
            pending += links(read([id])[0])
    return found


def test_memory_is_that_of_the_newest_version_however_long_the_log_is(tmp_path: Path) -> None:
    peaks: list[int] = []
    for turns in (300, 3000):
        with SqliteStore(tmp_path / str(turns), durability="relaxed") as store:
            handle = History(store, "team/one").open()
            for turn in range(turns):
                handle.commit({"turn": turn, "text": "long " * 50})
            store.gc()
            store.stats(recent=10)
            tracemalloc.start()
            store.stats(recent=10)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()

    assert peaks[1] < 2 * peaks[0]
