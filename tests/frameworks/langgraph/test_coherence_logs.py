"""What agents do through `CoherentStore` is recorded, and a lost update is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from ropewalk.adapters.langgraph import CoherentStore
from ropewalk.coherence import record_to, replay
from ropewalk.errors import VersionConflict

AGENTS = ["a", "b", "c", "d"]


def add_one_each(store: CoherentStore) -> int:
    """All agents read a counter, then each puts one more than it read; what is there then."""
    store.put(("a", "shared"), "counter", {"n": 0})
    read = {}
    for agent in AGENTS:
        item = store.get((agent, "shared"), "counter")
        assert item is not None
        read[agent] = item.value["n"]
    for agent, n in read.items():
        store.put((agent, "shared"), "counter", {"n": n + 1})
    item = store.get(("a", "shared"), "counter")
    assert item is not None
    return int(item.value["n"])


def test_increments_that_puts_lose_are_found(tmp_path: Path) -> None:
    with CoherentStore(on_conflict="overwrite", **record_to(tmp_path)) as store:
        left = add_one_each(store)

    done = replay(tmp_path)
    assert left == 1
    assert [(one.invariant, one.agent) for one in done.findings] == [
        ("lost-update", "b"), ("lost-update", "c"), ("lost-update", "d"),
    ]  # fmt: skip


def test_increments_that_would_be_lost_are_refused_unless_that_was_chosen(tmp_path: Path) -> None:
    with (
        CoherentStore(**record_to(tmp_path)) as store,
        pytest.raises(VersionConflict),
    ):
        add_one_each(store)

    assert replay(tmp_path).findings == []


def test_everything_that_a_store_does_is_recorded(tmp_path: Path) -> None:
    with CoherentStore(**record_to(tmp_path)) as store:
        store.put(("a", "shared"), "plan", {"step": 1})
        store.get(("b", "shared"), "plan")
        store.search(("b", "shared"))
        store.delete(("b", "shared"), "plan")
        nothing = store.get(("a", "shared"), "plan")

    done = replay(tmp_path)
    assert nothing is None
    assert (done.reads, done.writes, done.agents, done.findings) == (3, 2, 2, [])
    assert done.complete
