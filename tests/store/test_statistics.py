"""The cost of statistics: each object is read twice at most, however much is shared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ropewalk.history import History
from ropewalk.store import MemoryStore
from ropewalk.tree import ObjectId


class CountingStore(MemoryStore):
    """Counts how often the frame of each object is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[ObjectId] = Counter()

    def _frames(self, ids: Sequence[ObjectId]) -> dict[ObjectId, bytes]:
        self.asked.update(ids)
        return super()._frames(ids)


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


def test_an_object_is_read_twice_at_most_and_what_others_are_stored_against_a_little_more() -> None:
    for versions in (20, 200):
        store = filled(versions)
        bases = {one.base for one in store.scan()}
        store.asked.clear()

        found = store.stats()

        assert found.reached == found.stored
        assert max(times for id, times in store.asked.items() if id not in bases) == 2
        assert sum(store.asked.values()) <= 4 * found.objects


def test_progress_is_told() -> None:
    told: list[str] = []

    filled(3).stats(progress=lambda step, done: told.append(step))

    assert "reading" in told
