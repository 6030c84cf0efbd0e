"""The asynchronous twins of a state: the same, from any event loop."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from ropewalk.errors import MergeConflict
from ropewalk.state import Versioned
from ropewalk.store import MemoryStore
from ropewalk.testing import FaultStore

R = TypeVar("R")

# These ask the store for one key at most, or are blocks; a program calls them as they are.
PLAIN = {
    *("clear", "items", "keys", "pop", "popitem", "setdefault", "update", "values"),
    *("changes", "namespace", "namespaces", "note", "records", "transaction"),
}


def test_every_method_that_asks_the_store_has_a_twin() -> None:
    names = {n for n, _ in inspect.getmembers(Versioned, inspect.isfunction) if n[0] != "_"}
    twins = {name for name in names if name[0] == "a" and name[1:] in names}

    assert names - twins - {name[1:] for name in twins} == PLAIN
    for name in twins - {"aclose"}:
        given = inspect.signature(getattr(Versioned, name)).parameters
        assert list(given) == list(inspect.signature(getattr(Versioned, name[1:])).parameters)


def test_a_state_is_used_by_its_twins(state: Versioned) -> None:
    async def work() -> None:
        state["a"] = [1]
        first = await state.acommit("First") or ""
        state["a"].append(2)
        await state.acommit()
        assert (await state.acheckout(first))["a"] == [1]
        assert len(await state.ahistory()) == 2
        assert [one.path for one in await state.adiff(first)] == [("a", 1)]
        other = await state.abranch("other")
        other["b"] = 1
        await other.acommit()
        await state.amerge("other")
        session = await state.asession()
        session["c"] = 1
        await session.acommit()
        await state.arefresh()
        assert dict(state) == {"a": [1, 2], "b": 1, "c": 1}
        assert sorted(await state.abranches()) == ["main", "other"]
        await state.areset(first)
        assert dict(state) == {"a": [1]}

    asyncio.run(work())


def test_errors_come_through(state: Versioned) -> None:
    state["a"] = 1
    state.commit()
    other = state.session()
    other["a"] = 2
    other.commit()
    state["a"] = 3

    with pytest.raises(MergeConflict):
        asyncio.run(state.acommit())


def test_tasks_with_a_session_each_lose_nothing(state: Versioned) -> None:
    state.update(n=0, log=[])
    state.commit()
    rules: Any = {"n": "add", "log": "append"}

    async def add(number: int) -> None:
        session = await state.asession()
        for step in range(5):
            session["n"] += 1
            session["log"].append((number, step))
            await session.acommit(mergers=rules)

    async def work() -> None:
        await asyncio.gather(*[add(number) for number in range(6)])

    asyncio.run(work())
    state.refresh()

    assert state["n"] == 30
    assert sorted(state["log"]) == [(number, step) for number in range(6) for step in range(5)]


def test_tasks_that_share_a_handle_lose_nothing(state: Versioned) -> None:
    state["log"] = []

    async def add(number: int) -> None:
        for step in range(5):
            state["log"].append((number, step))
            await state.acommit()

    async def work() -> None:
        await asyncio.gather(*[add(number) for number in range(6)])

    asyncio.run(work())

    stored = state.session()["log"]
    assert sorted(stored) == [(number, step) for number in range(6) for step in range(5)]


class Slow(FaultStore):
    """Waits in a commit until it is told to go on."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.entered, self.go_on = threading.Event(), threading.Event()

    def _call(self, method: str, call: Callable[[], R]) -> R:
        if method == "commit":
            self.entered.set()
            self.go_on.wait()
        return super()._call(method, call)


def test_a_commit_that_was_cancelled_is_finished_and_the_handle_goes_on() -> None:
    store = Slow()
    state = Versioned(store)
    held: list[Any] = [1]
    state["a"] = held

    async def work() -> None:
        task = asyncio.create_task(state.acommit())
        await asyncio.to_thread(store.entered.wait)
        task.cancel()
        held.append("while it was under way")
        with pytest.raises(asyncio.CancelledError):
            await task
        store.go_on.set()
        await state.acommit()

    asyncio.run(work())

    assert dict(Versioned(store)) == {"a": [1, "while it was under way"]}
    assert dict(state.checkout(state.history()[-1].id.hex())) == {"a": [1]}
    assert len(state.history()) == 2


def test_two_loops_in_two_threads_share_a_handle(state: Versioned) -> None:
    state["log"] = []

    def loop(name: str) -> None:
        async def work() -> None:
            for number in range(10):
                state["log"].append((name, number))
                await state.acommit()

        asyncio.run(work())

    threads = [threading.Thread(target=loop, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(state.session()["log"]) == 20


def test_a_state_closes_asynchronously(memory_folder: Any) -> None:
    async def work() -> None:
        state = Versioned(memory_folder / "state")
        state["a"] = 1
        await state.acommit()
        await state.aclose()

    asyncio.run(work())

    with Versioned(memory_folder / "state") as again:
        assert again["a"] == 1
