"""Transactions in an event loop: its tasks share a thread, and no lock keeps them apart."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context

import pytest

import ropewalk
from ropewalk.errors import InvalidInput
from ropewalk.state import State, Versioned


async def within(state: Versioned, other: Callable[[], Awaitable[object]]) -> object:
    """What another task gets that runs while this one is in a transaction."""
    entered, done = asyncio.Event(), asyncio.Event()

    async def second() -> object:
        await entered.wait()
        try:
            return await other()
        finally:
            done.set()

    async with asyncio.timeout(30):
        running = asyncio.create_task(second())
        with state.transaction("First"):
            state["one"] = 1
            entered.set()
            await done.wait()
            state["two"] = 2
        return await running


def test_a_transaction_of_another_task_is_refused_and_takes_nothing_along() -> None:
    state = Versioned()

    async def other() -> None:
        with state.transaction("Second"):
            state["three"] = 3

    with pytest.raises(InvalidInput, match=r"another task .* state\.session\(\)"):
        asyncio.run(within(state, other))

    assert dict(state.checkout("main")) == {"one": 1, "two": 2}
    assert [commit.description for commit in state.history()] == ["First"]


@pytest.mark.parametrize("verb", ["commit", "refresh", "reset"])
def test_another_task_is_told_why_it_cannot_commit_now(verb: str) -> None:
    state = Versioned()

    async def other() -> None:
        getattr(state, verb)()

    with pytest.raises(InvalidInput, match=rf"{verb}\(\) cannot be done now: another task"):
        asyncio.run(within(state, other))

    assert dict(state.checkout("main")) == {"one": 1, "two": 2}


@pytest.mark.parametrize("verb", ["acommit", "arefresh", "areset"])
def test_twins_in_a_transaction_are_refused_at_once(verb: str) -> None:
    state = Versioned()

    async def main() -> None:
        async with asyncio.timeout(30):
            with state.transaction():
                state["one"] = 1
                await getattr(state, verb)()

    with pytest.raises(InvalidInput, match="has no place in a transaction"):
        asyncio.run(main())

    assert dict(state) == {}


def test_a_handle_of_its_own_lets_each_task_have_a_transaction() -> None:
    state = Versioned()

    async def other() -> None:
        mine = state.session()
        with mine.transaction("Second"):
            mine["three"] = 3

    asyncio.run(within(state, other))

    assert dict(state) == {"one": 1, "two": 2, "three": 3}


def test_a_call_by_another_task_does_not_join_a_transaction() -> None:
    state, outside = Versioned(), Context()

    @ropewalk.task
    async def work(state: State) -> None:
        state["three"] = 3

    async def main() -> None:
        began = asyncio.Event()

        async def second() -> None:
            began.set()
            await work(state=state)

        async with asyncio.timeout(30):
            with suppress(ValueError), state.transaction("First"):
                running = asyncio.create_task(second(), context=outside)
                await began.wait()
                raise ValueError("no")
            await running

    asyncio.run(main())

    assert dict(state.checkout("main")) == {"three": 3}


def test_tasks_that_a_transaction_starts_are_inside_of_it() -> None:
    state = Versioned()

    async def inner() -> None:
        with state.transaction():
            state["inner"] = 1

    async def main() -> None:
        with state.transaction("Outer"):
            await asyncio.wait_for(inner(), 30)
            state["outer"] = 1

    asyncio.run(main())

    assert [commit.description for commit in state.history()] == ["Outer"]
    assert dict(state.checkout("main")) == {"inner": 1, "outer": 1}
