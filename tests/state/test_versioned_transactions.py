"""Transactions: a block is one commit, or nothing."""

# ruff: noqa: PT012 - a block that raises is what is tested

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from ropewalk.errors import InvalidInput, MergeConflict, NotStorable
from ropewalk.state import Versioned
from tests.state.conftest import StateOpener
from tests.state.large import messages


def test_a_block_is_one_commit(state: Versioned, open_state: StateOpener) -> None:
    with state.transaction("Two things") as inside:
        inside["a"] = [1]
        inside["a"].append(2)
        state["b"] = 3

    assert dict(open_state()) == {"a": [1, 2], "b": 3}
    assert [one.description for one in state.history()] == ["Two things"]


def test_a_block_that_raises_leaves_everything_as_it_was(
    state: Versioned, open_state: StateOpener
) -> None:
    state.update(a=[1], b={"x": 1}, big=messages(100), gone="here")
    state.commit()
    state["own"] = ["not committed"]
    state["b"]["y"] = "in place, not committed"
    state["big"].append("not committed")
    state["soon gone"] = 1
    del state["gone"]
    state.note({"kind": "before"})
    with pytest.raises(ZeroDivisionError), state.transaction():
        state["a"].append(2)
        state["b"]["z"] = 3
        state["b"].pop("y")
        state["big"].clear()
        state["own"].append("in the block")
        state["new"] = 1
        state["gone"] = "back"
        del state["soon gone"]
        del state["a"]
        state.note({"kind": "inside"})
        raise ZeroDivisionError

    expected = {
        "a": [1],
        "b": {"x": 1, "y": "in place, not committed"},
        "big": [*messages(100), "not committed"],
        "own": ["not committed"],
        "soon gone": 1,
    }
    assert dict(state) == expected
    assert [one.record["kind"] for one in state.records()] == ["before"]
    state["own"].append("after")
    state.commit()
    assert dict(open_state()) == {**expected, "own": ["not committed", "after"]}


def test_everything_may_be_cleared_in_a_block_that_raises(state: Versioned) -> None:
    state.update(a=1, b=[2])
    state.commit()
    state["c"] = 3
    with pytest.raises(ZeroDivisionError), state.transaction():
        state.clear()
        raise ZeroDivisionError

    assert dict(state) == {"a": 1, "b": [2], "c": 3}


def test_a_transaction_before_the_first_commit_leaves_nothing_if_it_raises(
    state: Versioned,
) -> None:
    state["before"] = 1
    with pytest.raises(ZeroDivisionError), state.transaction():
        state["a"] = 1
        del state["before"]
        raise ZeroDivisionError

    assert dict(state) == {"before": 1}
    assert state.commit_hash is None


def test_a_block_inside_another_is_committed_with_it(state: Versioned) -> None:
    with state.transaction("Outer"):
        state["a"] = [1]
        with state.transaction("Inner"):
            state["a"].append(2)
        assert state.commit_hash is None
        state["b"] = 1

    assert [one.description for one in state.history()] == ["Outer"]
    assert dict(state) == {"a": [1, 2], "b": 1}


def test_a_block_inside_that_raises_takes_only_itself_back(
    state: Versioned, open_state: StateOpener
) -> None:
    state["a"] = [0]
    state.commit()
    with state.transaction():
        state["a"].append(1)
        with pytest.raises(ZeroDivisionError), state.transaction():
            state["a"].append(2)
            state["new"] = 1
            raise ZeroDivisionError
        assert state["a"] == [0, 1]
        state["a"].append(3)

    assert dict(open_state()) == {"a": [0, 1, 3]}


def test_an_outer_block_that_raises_takes_the_inner_one_back_too(state: Versioned) -> None:
    state["a"] = [0]
    state.commit()
    with pytest.raises(ZeroDivisionError), state.transaction():
        with state.transaction():
            state["a"].append(1)
        raise ZeroDivisionError

    assert state["a"] == [0]
    assert not state.dirty


def test_a_block_of_which_the_commit_fails_leaves_nothing(
    state: Versioned, open_state: StateOpener
) -> None:
    state["a"] = {"x": 1}
    state.commit()
    other = open_state()
    other["a"]["x"] = "other"
    other.commit()
    state["own"] = [1]
    with pytest.raises(MergeConflict), state.transaction():
        state["a"]["x"] = "ours"
        state["own"].append(2)
    with pytest.raises(NotStorable), state.transaction():
        state["own"].append(object())

    assert dict(state) == {"a": {"x": 1}, "own": [1]}
    state.commit()
    assert dict(state) == {"a": {"x": "other"}, "own": [1]}


def test_a_transaction_that_changes_nothing_makes_no_commit(state: Versioned) -> None:
    state["a"] = 1
    first = state.commit()
    with state.transaction():
        state["a"] = 1

    assert state.commit_hash == first


@pytest.mark.parametrize("verb", ["commit", "refresh", "reset"])
def test_what_moves_the_state_has_no_place_in_a_transaction(state: Versioned, verb: str) -> None:
    state["a"] = 1
    state.commit()
    with state.transaction():
        state["a"] = 2
        with pytest.raises(InvalidInput, match=verb):
            getattr(state, verb)()
        with pytest.raises(InvalidInput, match="merge"):
            state.merge("main")

    assert state.checkout("main")["a"] == 2


def test_an_asynchronous_call_inside_a_transaction_is_refused_and_does_not_hang(
    state: Versioned,
) -> None:
    async def work() -> None:
        with state.transaction():
            state["a"] = 1
            for call in (state.acommit, state.arefresh, state.areset):
                with pytest.raises(InvalidInput):
                    await call()

    asyncio.run(asyncio.wait_for(work(), 20))

    assert state.checkout("main")["a"] == 1


def test_tasks_of_one_loop_do_not_share_a_transaction(state: Versioned) -> None:
    inside, go_on = asyncio.Event, asyncio.Event

    async def work() -> list[str]:
        entered, leave = inside(), go_on()
        seen: list[str] = []

        async def first() -> None:
            with state.transaction():
                state["first"] = 1
                entered.set()
                await leave.wait()

        async def second() -> None:
            await entered.wait()
            try:
                with state.transaction():
                    state["second"] = 1
            except InvalidInput:
                seen.append("refused")
            waiting = asyncio.create_task(state.acommit())  # Waits for its turn in a thread.
            leave.set()
            await waiting

        await asyncio.gather(first(), second())
        return seen

    assert asyncio.run(asyncio.wait_for(work(), 20)) == ["refused"]
    assert dict(state.checkout("main")) == {"first": 1}


def test_other_threads_wait_for_the_end_of_a_block(state: Versioned) -> None:
    state["n"] = 0
    state.commit()
    begun, seen = threading.Event(), []

    def read() -> None:
        begun.set()
        seen.append(state["n"])

    thread = threading.Thread(target=read)
    with state.transaction():
        state["n"] = 1
        thread.start()
        begun.wait()
        state["n"] = 2
    thread.join()

    assert seen == [2]


def test_objects_are_read_anew_after_a_block_that_raised(
    state: Versioned, open_state: StateOpener
) -> None:
    state["a"] = {"deep": [1]}
    state.commit()
    held: Any = state["a"]["deep"]
    with pytest.raises(ZeroDivisionError), state.transaction():
        held.append(2)
        raise ZeroDivisionError

    assert state["a"]["deep"] == [1]
    state["a"]["deep"].append(3)
    state.commit()
    assert open_state()["a"] == {"deep": [1, 3]}
