"""Artifacts that agents share, on every engine."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from ropewalk.coherence import CoherenceCore, State
from ropewalk.errors import InvalidInput, NotFound, StoreClosed
from ropewalk.store import MemoryStore
from tests.coherence.conftest import OpenCore


def test_what_one_agent_writes_another_reads(core: CoherenceCore) -> None:
    written = core.write("planner", "plan", {"step": 1})

    found = core.read("reviewer", "plan")

    assert (written.version, found.version) == (1, 1)
    assert found.value == {"step": 1}
    assert (found.agent, found.source, found.state) == ("planner", "fetch", State.SHARED)
    assert found.content_hash == written.content_hash


def test_a_second_read_of_the_same_version_is_served_from_the_copy(core: CoherenceCore) -> None:
    core.write("planner", "plan", {"step": 1})
    core.read("reviewer", "plan")

    assert core.read("reviewer", "plan").source == "cache_hit"


@pytest.mark.parametrize("value", [{"a": 1}, {"a": {"b": [1, 2]}}, [1, [2]], {"when": {1, 2}}])
def test_what_is_read_is_the_readers_own(core: CoherenceCore, value: Any) -> None:
    core.write("planner", "plan", value)
    first = core.read("reviewer", "plan").value
    first.clear()

    assert core.read("reviewer", "plan").value == value
    assert core.read("planner", "plan").value == value


def test_what_was_written_does_not_change_with_the_writers_value(core: CoherenceCore) -> None:
    value = {"steps": [1]}
    core.write("planner", "plan", value)
    value["steps"].append(2)

    assert core.read("planner", "plan").value == {"steps": [1]}


def test_a_version_that_was_overtaken_is_not_read_again(core: CoherenceCore) -> None:
    core.write("planner", "plan", 1)
    core.read("reviewer", "plan")
    core.write("planner", "plan", 2)

    assert core.state("reviewer", "plan") is State.INVALID
    assert core.read("reviewer", "plan").value == 2


def test_another_client_sees_what_was_acknowledged(open_core: OpenCore, engine: str) -> None:
    one = open_core()
    other = one if engine == "local" else open_core()  # Without a store a client is alone.
    one.write("planner", "plan", 1)
    seen = [other.read("reviewer", "plan").value]
    for number in range(2, 6):
        one.write("planner", "plan", number)
        seen.append(other.read("reviewer", "plan").value)

    assert seen == [1, 2, 3, 4, 5]


def test_an_artifact_that_is_not_there_is_not_invented(core: CoherenceCore) -> None:
    with pytest.raises(NotFound, match="'plan'"):
        core.read("reviewer", "plan")
    with pytest.raises(NotFound):
        core.edit("reviewer", "plan", lambda value: value)


@pytest.mark.parametrize(
    "name", ["a/b", "ä b", "x" * 600, "~tilde", "line\nbreak", "..", "%41", "a:b", "plan "]
)
def test_an_artifact_may_have_any_name(core: CoherenceCore, name: str) -> None:
    core.write("planner", name, 1)
    core.write("planner", name + "!", 2)

    assert core.read("reviewer", name).value == 1
    assert core.artifacts() == sorted([name, name + "!"])
    assert [one.artifact for one in core.watch([name], after=0, timeout=0.01)] == [name]


@pytest.mark.parametrize("name", ["", None, 7, b"plan"])
def test_what_is_no_name_is_refused(core: CoherenceCore, name: Any) -> None:
    with pytest.raises(InvalidInput):
        core.write("planner", name, 1)
    with pytest.raises(InvalidInput):
        core.read(name, "plan")


def test_a_large_value_of_which_little_changes_comes_back(core: CoherenceCore) -> None:
    value = {"lines": [f"line {number} of many" for number in range(2000)]}
    for number in range(5):
        value["lines"][number * 100] = f"changed {number}"
        core.write("planner", "text", value)

    assert core.read("reviewer", "text").value == value
    assert core.read("reviewer", "text").version == 5


def test_agents_are_known_by_what_they_did(core: CoherenceCore) -> None:
    core.register_agent("idle")
    core.write("planner", "plan", 1)
    core.unregister_agent("idle")

    assert core.agents() == ["planner"]


def test_an_agent_that_was_forgotten_has_seen_nothing(core: CoherenceCore) -> None:
    core.write("planner", "plan", {"a": 1})
    core.read("reviewer", "plan")
    core.unregister_agent("reviewer")

    assert core.state("reviewer", "plan") is State.INVALID


def test_nothing_is_done_after_closing(core: CoherenceCore) -> None:
    core.write("planner", "plan", 1)
    core.close()
    core.close()

    with pytest.raises(StoreClosed):
        core.read("planner", "plan")
    with pytest.raises(StoreClosed):
        core.write("planner", "plan", 2)


def test_every_method_has_a_twin(open_core: OpenCore) -> None:
    async def work() -> tuple[Any, ...]:
        async with open_core() as core:
            await core.awrite("planner", "plan", {"n": 1})
            await core.aedit("reviewer", "plan", lambda value: {"n": value["n"] + 1})
            found = await core.aread("planner", "plan")
            await core.apublish("planner", {"budget": 1})
            names = await core.aartifacts()
            seen = [one.version async for one in core.awatch(after=0, timeout=0.01)]
            snapshot = await core.asnapshot("planner", ["plan", "budget"])
            await core.adelete("planner", "plan")
            return found.value, names, seen, snapshot["budget"].value, await core.aartifacts()

    assert asyncio.run(work()) == ({"n": 2}, ["budget", "plan"], [1, 2, 1], 1, ["budget"])


def test_a_closed_set_of_artifacts_takes_no_new_one(open_core: OpenCore) -> None:
    core = open_core()
    core.close()

    with pytest.raises(StoreClosed):
        core.register_artifact("plan", 1)


def test_numbers_that_make_no_sense_are_refused(core: CoherenceCore) -> None:
    core.write("planner", "plan", 1)

    with pytest.raises(InvalidInput, match="offset"):
        core.search("planner", offset=-1)
    with pytest.raises(InvalidInput, match="limit"):
        core.search("planner", limit=-1)
    with pytest.raises(InvalidInput, match="timeout"):
        core.edit("planner", "plan", lambda value: value, timeout="soon")  # type: ignore[arg-type]


def test_a_client_that_was_dropped_follows_the_log_no_more() -> None:
    core = CoherenceCore(MemoryStore(), strategy="broadcast", tick_seconds=0.1, bus=False)
    follower = core._client.follower
    assert follower is not None and follower.timer._thread is not None
    thread = follower.timer._thread
    del core, follower
    gc.collect()
    thread.join(30)

    assert not thread.is_alive()
