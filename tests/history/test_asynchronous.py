"""The asynchronous twins: the same, from any event loop."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable
from typing import Any

import pytest

from ropewalk.errors import MergeConflict
from ropewalk.history import Branch, History
from ropewalk.tree import TreeWriter, put
from tests.history.steps import commit, forked


def run(work: Awaitable[Any]) -> Any:
    async def whole() -> Any:
        return await work

    return asyncio.run(whole())


@pytest.mark.parametrize("cls", [History, Branch])
def test_every_method_that_asks_the_store_has_a_twin(cls: type) -> None:
    names = {name for name, _ in inspect.getmembers(cls, inspect.isfunction) if name[0] != "_"}
    twins = {name for name in names if name[0] == "a" and name[1:] in names}

    assert names - twins - {name[1:] for name in twins} == set()
    for name in twins:
        given = inspect.signature(getattr(cls, name)).parameters
        assert list(given) == list(inspect.signature(getattr(cls, name[1:])).parameters)


def test_a_branch_is_read_and_written(history: History) -> None:
    async def work() -> None:
        main = await history.aopen()
        await main.acommit({"a": 1}, metadata={"m": 1}, events=["e"])
        value = await main.aread()
        await main.acommit({**value, "b": 2}, description="Second")
        await main.aupdate(lambda root, read: put(root or b"", ("a",), 3, read))
        assert await main.arefresh() == await history.aresolve()

    run(work())

    assert history.value() == {"a": 3, "b": 2}
    assert [one.description for one in history.steps()] == ["", "Second", ""]


def test_a_history_is_read(history: History) -> None:
    start, left, right, merged = forked(history)
    history.open().commit({"a": 1, "b": 1}, metadata=[1], events=[2])

    async def work() -> None:
        assert await history.avalue(left) == {"a": 1, "b": 0}
        assert (await history.amap(left)).root == left.root
        assert await history.ametadata() == [1]
        assert await history.aevents() == [2]
        assert [one.path for one in await history.adiff(start, left)] == [("a",)]
        assert [one async for one in history.aancestors(left)] == [left, start]
        assert [one async for one in history.asteps(merged)] == [merged, left, start]
        assert await history.amerge_base(left, right) == start
        assert await history.ais_ancestor(start, right)
        assert len(await history.aoperations()) == 6

    run(work())


def test_refs_are_moved(history: History) -> None:
    first = commit(history, {"a": 0})
    written = TreeWriter().write("kept")

    async def work() -> None:
        await history.acreate_branch("side")
        side = await history.aopen("side")
        await side.acommit({"a": 0, "b": 1})
        await history.amerge("side")
        await history.acreate_tag("tag")
        assert await history.atags() == {"tag": (await history.aresolve()).id}
        await history.adelete_tag("tag")
        await history.amove_branch("main", first)
        await history.adelete_branch("side")
        assert await history.abranches() == {"main": first.id}
        await history.apin("pin", written.root, written.objects, expires_at=1)
        assert [one.name for one in await history.apins()] == ["pin"]
        assert await history.aprune_expired() == ["pin"]
        await history.aundo()
        await history.aredo()
        await history.aundo()
        await history.aunpin("pin")

    run(work())

    assert history.pins() == []
    assert history.resolve() == first


def test_errors_come_through(history: History, main: Branch) -> None:
    main.commit({"a": 0})
    other = history.open()
    main.commit({"a": 1})

    with pytest.raises(MergeConflict):
        run(other.acommit({"a": 2}))


def test_tasks_with_a_handle_each_lose_nothing(history: History, main: Branch) -> None:
    main.commit({"n": 0})

    async def add() -> None:
        handle = await history.aopen()
        for _ in range(5):
            value = await handle.aread()
            await handle.acommit({"n": value["n"] + 1}, mergers={"n": "add"})

    async def work() -> None:
        await asyncio.gather(*[add() for _ in range(5)])

    run(work())

    assert history.value() == {"n": 25}


def test_a_commit_whose_task_was_cancelled_is_finished(history: History, main: Branch) -> None:
    main.commit({"n": 0})
    begun, go_on = threading.Event(), threading.Event()

    def edit(root: bytes | None, read: Any) -> Any:
        begun.set()
        assert go_on.wait(30)
        return put(root or b"", ("n",), 1, read)

    async def work() -> None:
        task = asyncio.create_task(main.aupdate(edit))
        await asyncio.to_thread(begun.wait, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        watching = history.awatch(timeout=30)
        go_on.set()
        async for operation in watching:
            assert operation.sequence == 2
            break

    run(work())

    assert history.value() == {"n": 1}


def test_a_watch_yields_operations_as_they_happen(history: History) -> None:
    commit(history, 0)

    async def work() -> list[int]:
        watching = history.awatch(timeout=30)
        for number in (1, 2):
            await asyncio.to_thread(commit, history, number)
        return [(await anext(watching)).sequence for _ in range(2)]

    assert run(work()) == [2, 3]
