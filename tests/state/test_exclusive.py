"""The same change by two writers: once for commits, a conflict for transactions and tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack

import pytest

import ropewalk
from ropewalk import MemoryStore, MergeConflict, Versioned
from ropewalk.errors import NotSaved
from ropewalk.state import State

Change = Callable[[State], None]


def count(state: State) -> None:
    state["n"] += 1


def append(state: State) -> None:
    state["log"].append("visited")


def nested(state: State) -> None:
    state["plan"]["stage"] = "done"


def remove(state: State) -> None:
    del state["plan"]


def add_key(state: State) -> None:
    state["new"] = {"a": 1}


CHANGES = [count, append, nested, remove, add_key]


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore()
    state = Versioned(store)
    state.update(n=0, log=[], plan={"stage": "begin"})
    state.commit()
    return store


def race(store: MemoryStore, change: Change, **rules: str) -> None:
    """Make a change in two transactions that overlap."""
    late, early = Versioned(store, mergers=rules), Versioned(store, mergers=rules)
    with ExitStack() as block:
        block.enter_context(late.transaction())
        change(late)
        with early.transaction():
            change(early)


@pytest.mark.parametrize("change", CHANGES)
def test_transactions_that_make_the_same_change_conflict(
    store: MemoryStore, change: Change
) -> None:
    with pytest.raises(MergeConflict, match="both sides made the same change"):
        race(store, change)

    assert len(Versioned(store).history()) == 2


@pytest.mark.parametrize("change", CHANGES)
def test_commits_that_make_the_same_change_are_one_change(
    store: MemoryStore, change: Change
) -> None:
    late, early = Versioned(store), Versioned(store)
    change(late)
    change(early)
    early.commit()
    late.commit()

    assert dict(Versioned(store)) == dict(early)


def test_a_commit_can_be_exclusive(store: MemoryStore) -> None:
    late, early = Versioned(store), Versioned(store)
    count(late)
    count(early)
    early.commit()

    with pytest.raises(MergeConflict):
        late.commit(exclusive=True)
    late.commit(exclusive=True, mergers={"n": "add"})
    assert Versioned(store)["n"] == 2


def test_mergers_settle_the_same_change(store: MemoryStore) -> None:
    race(store, count, n="add")
    race(store, append, log="append")
    race(store, remove, plan="ours")

    state = Versioned(store)
    assert (state["n"], state["log"], "plan" in state) == (2, ["visited", "visited"], False)


def test_a_transaction_begins_at_the_newest_version(store: MemoryStore) -> None:
    behind = Versioned(store)
    held = behind["log"]
    with Versioned(store).transaction() as other:
        append(other)
        count(other)

    with behind.transaction():
        count(behind)
        assert held == ["visited"]

    assert Versioned(store)["n"] == 2


def test_a_transaction_begins_with_what_was_not_committed(store: MemoryStore) -> None:
    state = Versioned(store)
    state["mine"] = 1
    with Versioned(store).transaction() as other:
        count(other)

    with state.transaction():
        assert state["n"] == 0
        state["mine"] += 1

    assert (state["mine"], state["n"]) == (2, 1)


def test_tasks_that_count_at_the_same_time_lose_nothing_silently(store: MemoryStore) -> None:
    @ropewalk.task
    async def visit(state: State) -> None:
        count(state)
        await asyncio.sleep(0)

    async def all_at_once() -> list[BaseException | None]:
        state = Versioned(store)
        calls = [visit(state=state) for _ in range(5)]
        return await asyncio.gather(*calls, return_exceptions=True)

    outcomes = asyncio.run(all_at_once())

    refused = [one for one in outcomes if isinstance(one, NotSaved)]
    assert all(one is None or isinstance(one, NotSaved) for one in outcomes)
    assert Versioned(store)["n"] == len(outcomes) - len(refused)


def test_a_commit_is_found_by_the_beginning_of_its_hash(store: MemoryStore) -> None:
    state = Versioned(store)
    first = state.commit_hash
    assert first is not None
    with state.transaction():
        count(state)

    assert state.checkout(first[:7])["n"] == 0
    assert state.diff(first[:12])[0].path == ("n",)
    with pytest.raises(ropewalk.NotFound):
        state.checkout("000000")
    with pytest.raises(ropewalk.NotFound):
        state.checkout(first[:5])


def test_the_states_of_a_store_are_listed(store: MemoryStore) -> None:
    other = Versioned(store, name="team/b c")
    other["a"] = 1
    other.commit()

    assert Versioned.names(store) == ["default", "team/b c"]


def test_a_value_is_read_without_blocking_a_loop(store: MemoryStore) -> None:
    state = Versioned(store)

    async def read() -> tuple[object, object]:
        return await state.aget("n"), await state.aget("nothing", 7)

    assert asyncio.run(read()) == (0, 7)
