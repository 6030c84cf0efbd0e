"""Editing: a function of the value, whatever others do meanwhile."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from ropewalk.coherence import CoherenceCore
from ropewalk.errors import VersionConflict
from tests.coherence.conftest import OpenCore


def count_up(value: dict[str, int]) -> dict[str, int]:
    return {"n": value["n"] + 1}


def test_edits_of_many_threads_are_all_there(core: CoherenceCore) -> None:
    core.write("first", "count", {"n": 0})

    def work(agent: str) -> None:
        for _ in range(10):
            core.edit(agent, "count", count_up)

    threads = [threading.Thread(target=work, args=(f"agent {n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert core.read("first", "count").value == {"n": 40}
    assert core.read("first", "count").version == 41


def test_an_edit_may_change_what_it_was_handed(core: CoherenceCore) -> None:
    core.write("planner", "log", ["a"])

    assert core.edit("reviewer", "log", lambda value: value.append("b")).value == ["a", "b"]


def test_an_edit_begins_with_a_default(core: CoherenceCore) -> None:
    assert core.edit("planner", "count", count_up, default={"n": 0}).value == {"n": 1}
    assert core.edit("planner", "count", count_up, default={"n": 0}).value == {"n": 2}


def test_an_edit_that_raises_changes_nothing(core: CoherenceCore) -> None:
    core.write("planner", "count", {"n": 0})

    with pytest.raises(ZeroDivisionError):
        core.edit("planner", "count", lambda value: 1 // 0)
    assert core.read("planner", "count").version == 1


def test_an_edit_that_is_not_merged_is_made_again_on_what_is_newest(open_core: OpenCore) -> None:
    core = open_core(on_conflict="raise")
    core.write("planner", "plan", {"a": 1, "b": 1})
    calls = []

    def change(value: dict[str, int]) -> dict[str, int]:
        calls.append(dict(value))
        if len(calls) == 1:
            core.write("reviewer", "plan", {"a": 2, "b": 1})
        return {**value, "b": value["a"] * 10}

    made = core.edit("planner", "plan", change)

    assert calls == [{"a": 1, "b": 1}, {"a": 2, "b": 1}]
    assert made.value == {"a": 2, "b": 20}


def test_what_the_function_of_an_edit_raises_is_its_callers(core: CoherenceCore) -> None:
    core.write("planner", "plan", {"n": 1})
    calls = []

    def change(value: Any) -> Any:
        calls.append(value)
        raise VersionConflict(("elsewhere",), "row", 1, 2)

    with pytest.raises(VersionConflict, match="elsewhere"):
        core.edit("planner", "plan", change)
    with pytest.raises(VersionConflict, match="elsewhere"):
        asyncio.run(core.aedit("planner", "plan", change))
    assert len(calls) == 2


def test_an_edit_that_is_in_its_own_way_ends(core: CoherenceCore) -> None:
    core.write("planner", "plan", {"n": 1})

    def change(value: Any) -> Any:
        core.edit("planner", "plan", count_up)
        return count_up(value)

    with pytest.raises(VersionConflict):
        core.edit("planner", "plan", change, timeout=0)


def test_an_edit_leaves_its_default_as_it_is(core: CoherenceCore) -> None:
    nothing: list[int] = []

    for artifact in ("plan", "budget"):
        core.edit("planner", artifact, lambda value: value.append(1), default=nothing)

    assert nothing == []
    assert core.read("planner", "budget").value == [1]


def test_tasks_that_wait_with_an_edit_leave_the_holder_a_thread(core: CoherenceCore) -> None:
    core.write("holder", "count", {"n": 0})
    many = 40  # More than there are threads for.

    async def work() -> None:
        async with asyncio.timeout(120):
            async with await core.ahold("holder", "count"):
                edits = [
                    asyncio.create_task(core.aedit(f"agent {number}", "count", count_up))
                    for number in range(many)
                ]
                await asyncio.sleep(0.2)
                await core.awrite("holder", "count", {"n": 100})
            await asyncio.gather(*edits)

    asyncio.run(work())

    assert core.read("holder", "count").value == {"n": 100 + many}
