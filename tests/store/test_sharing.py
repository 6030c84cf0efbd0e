"""Large content that several spaces hold: it is there once, and whole as long as one holds it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from ropewalk import AgentState, Externalized, Timeline, create_runtime
from ropewalk.store import FileStore, SqliteStore, Store

DOCUMENT = random.Random(7).randbytes(300_000).hex()
TAKEN = 310_000
"""About what it takes once: random digits are halved."""


class Notes(AgentState):
    notes: Externalized[dict[str, str]]


class State(AgentState):
    document: Externalized[str]


@pytest.fixture(params=[SqliteStore, FileStore])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with request.param(tmp_path / "store", durability="relaxed") as opened:
        yield opened


def forget(timeline: Timeline) -> None:
    for branch in timeline.list_branches():
        timeline._history.delete_branch(branch.name)


def test_a_document_that_many_hold_is_stored_once(store: Store) -> None:
    agents = [Timeline(f"agent {number}", store) for number in range(20)]
    for number, agent in enumerate(agents):
        agent.checkpoint({"document": DOCUMENT, "number": number})
    agents[0].fork("forked")
    for _ in range(2):
        State(runtime=create_runtime(backend=store), document=DOCUMENT).to_checkpoint_dict()

    found = store.stats()

    assert found.stored < TAKEN + 22 * 1000
    assert found.shared > 290_000
    assert store.check(read_data=True).ok


def test_a_collection_of_one_holder_leaves_the_others_whole(store: Store) -> None:
    first, second = Timeline("first", store), Timeline("second", store)
    first.checkpoint({"document": DOCUMENT})
    second.checkpoint({"document": DOCUMENT, "n": 2})
    forked = first.fork("forked")
    state = State(runtime=create_runtime(backend=store), document=DOCUMENT)
    kept = state.to_checkpoint_dict()

    for holder in (first, second, forked):
        forget(holder)
        store.gc(recent=0)
        assert store.check(read_data=True).ok
        if holder is not forked:
            assert forked.get_state() == {"document": DOCUMENT}

    read = State.from_checkpoint_dict(kept, runtime=create_runtime(backend=store))
    assert read.document == DOCUMENT
    assert store.stats().stored < TAKEN + 3000


def test_what_nobody_holds_any_more_is_freed(store: Store) -> None:
    agents = [Timeline(name, store) for name in ("one", "two")]
    for agent in agents:
        agent.checkpoint({"document": DOCUMENT})
    for agent in agents:
        forget(agent)

    freed = store.gc(recent=0)

    assert freed.freed_bytes > 290_000
    assert store.stats().objects == 0


def test_a_fork_of_a_long_timeline_has_all_its_steps(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ropewalk.store.collection._PORTION", 2000)
    agent = Timeline("agent", store)
    for turn in range(40):
        agent.checkpoint({"turn": turn, "notes": [f"note {turn}"] * 20})
    store.gc()
    agent.checkpoint({"turn": 40})

    forked = agent.fork("forked")

    assert [one.id for one in forked.history(limit=None)] == [
        one.id for one in agent.history(limit=None)
    ]
    assert [one.state["turn"] for one in forked.history(limit=None)] == list(range(40, -1, -1))
    forget(agent)
    store.gc(recent=0)
    assert forked.history(limit=None)[-1].state["turn"] == 0
    assert store.check(read_data=True).ok


def test_the_inside_of_a_content_stays_as_long_as_its_pin(store: Store) -> None:
    notes = {f"key {at}": random.Random(at).randbytes(3000).hex() for at in range(8)}
    state = Notes(runtime=create_runtime(backend=store), notes=notes)
    kept = state.to_checkpoint_dict()

    store.gc(recent=0)

    assert store.check(read_data=True).ok
    read = Notes.from_checkpoint_dict(kept, runtime=create_runtime(backend=store))
    assert read.notes == notes
