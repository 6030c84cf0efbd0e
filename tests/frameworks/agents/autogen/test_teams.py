"""Teams whose states are a timeline: saved, killed, rolled back and forked."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_ext.models.replay import ReplayChatCompletionClient

from ropewalk import MemoryStore, SqliteStore, Timeline
from ropewalk.adapters.autogen import TeamTimeline
from ropewalk.errors import Conflict, NotFound, RefMoved
from tests.engines import ENGINES, opening
from tests.frameworks.turn import ROOT


def team(*names: str) -> RoundRobinGroupChat:
    return RoundRobinGroupChat(
        [
            AssistantAgent(
                name, ReplayChatCompletionClient([f"{name} {turn}" for turn in range(20)])
            )
            for name in names or ("scout", "driver")
        ],
        termination_condition=MaxMessageTermination(3),
    )


async def said(team: RoundRobinGroupChat) -> list[str]:
    """What the team said so far, as its manager has it."""
    state = await team.save_state()
    (manager,) = (one for one in state["agent_states"].values() if "message_thread" in one)
    return [message["content"] for message in manager["message_thread"]]


def run(work: Any) -> Any:
    return asyncio.run(work)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_team_goes_on_in_another_process(engine: str, tmp_path: Path) -> None:
    async def talk(new_store: Any) -> tuple[list[str], list[str]]:
        first, second = team(), team()
        await first.run(task="where to?")
        saved = await TeamTimeline("trip", new_store()).save_state(first, "asked")
        loaded = await TeamTimeline("trip", new_store()).load_state(second)
        assert loaded == saved and loaded.description == "asked"
        return await said(first), await said(second)

    with opening(engine, tmp_path) as new_store:
        before, after = run(talk(new_store))

    assert before == after == ["where to?", "scout 0", "driver 0"]


def test_a_team_is_saved_after_tasks_that_were_cancelled_anywhere() -> None:
    async def talk() -> None:
        timeline, group = TeamTimeline("trip", MemoryStore()), team()
        for steps in range(12):
            begun = asyncio.create_task(timeline.save_state(group, "cancelled"))
            for _ in range(steps):
                await asyncio.sleep(0)
            begun.cancel()
            saved = await timeline.save_state(group, f"after {steps}")
            assert timeline.head == saved

    run(talk())


def test_a_rollback_and_a_fork_go_on_from_an_earlier_turn() -> None:
    async def talk() -> list[list[str]]:
        timeline, group = TeamTimeline("trip", MemoryStore()), team()
        for task in ("one", "two", "three"):
            await group.run(task=task)
            await timeline.save_state(group)
        fork = timeline.fork("other trip", timeline.history()[2].id)
        timeline.rollback()
        found = []
        for one in (timeline, fork):
            await one.load_state(group)
            await group.run(task="again")
            await one.save_state(group)
            found.append([text for text in await said(group) if " " not in text])
        return found

    rolled_back, forked = run(talk())

    assert rolled_back == ["one", "two", "again"]
    assert forked == ["one", "again"]


def test_a_branch_is_a_conversation_of_its_own_that_shares_what_is_stored() -> None:
    async def talk() -> tuple[list[str], list[int]]:
        store = MemoryStore()
        timeline, group = TeamTimeline("trip", store), team()
        for turn in range(5):
            await group.run(task=f"{turn}: {os.urandom(2000).hex()}")
            await timeline.save_state(group)
        before = store.stats().stored
        timeline.branch("by sea", timeline.history()[2].id)
        branch = TeamTimeline("trip", store, branch="by sea")
        await branch.load_state(group)
        sizes = [before, store.stats().stored]
        await group.run(task="by sea")
        await branch.save_state(group)
        return [text.split(":")[0] for text in await said(group)], sizes

    tasks, (before, after) = run(talk())

    assert [one for one in tasks if " " not in one or "sea" in one] == ["0", "1", "2", "by sea"]
    assert after - before < 2_000


def test_of_two_that_save_one_is_told_and_nothing_is_lost() -> None:
    async def talk() -> tuple[list[str], list[str]]:
        store = MemoryStore()
        ours, theirs = TeamTimeline("trip", store), TeamTimeline("trip", store)
        first, second = team(), team()
        await first.run(task="one")
        await ours.save_state(first)
        await theirs.load_state(second)
        await second.run(task="theirs")
        await theirs.save_state(second)
        await first.run(task="ours")
        with pytest.raises(RefMoved):
            await ours.save_state(first)
        await ours.load_state(first)
        return await said(first), await said(second)

    ours, theirs = run(talk())

    assert ours == theirs and "theirs" in ours


def test_of_two_first_states_one_is_told() -> None:
    async def talk() -> None:
        store = MemoryStore()
        ours, theirs = TeamTimeline("trip", store), TeamTimeline("trip", store)
        first, second = team(), team()
        await first.run(task="ours")
        await second.run(task="theirs")
        results = await asyncio.gather(
            ours.save_state(first), theirs.save_state(second), return_exceptions=True
        )
        assert sorted(isinstance(one, Conflict) for one in results) == [False, True]
        assert len(ours.history()) == 1

    run(talk())


def test_a_team_that_loaded_nothing_replaces_nothing() -> None:
    async def talk() -> None:
        store = MemoryStore()
        await TeamTimeline("trip", store).save_state(team())
        with pytest.raises(Conflict, match="load_state"):
            await TeamTimeline("trip", store).save_state(team())
        with pytest.raises(NotFound):
            await TeamTimeline("another", store).load_state(team())

    run(talk())


def test_an_agent_can_be_saved_alone() -> None:
    async def talk() -> Any:
        timeline = TeamTimeline("scout", MemoryStore())
        agents = [AssistantAgent("scout", ReplayChatCompletionClient(["here"])) for _ in range(2)]
        await agents[0].run(task="where?")
        await timeline.save_state(agents[0])
        await timeline.load_state(agents[1])
        return [await one.save_state() for one in agents]

    first, second = run(talk())

    assert first == second


def test_another_turn_costs_what_was_added() -> None:
    async def talk() -> list[int]:
        store, sizes = MemoryStore(), []
        timeline, group = TeamTimeline("trip", store), team()
        for turn in range(10):
            await group.run(task=f"{turn}: {os.urandom(2000).hex()}")
            await timeline.save_state(group)
            sizes.append(store.stats().stored)
        return sizes

    sizes = run(talk())

    # The team keeps a task three times: once for each agent, and once for the manager.
    assert sizes[-1] - sizes[-2] < 1.5 * (sizes[2] - sizes[1])


KILLED = """
import asyncio, os, signal, sys
from ropewalk import SqliteStore
from ropewalk.adapters.autogen import TeamTimeline
from tests.frameworks.agents.autogen.test_teams import team

async def main():
    timeline, group = TeamTimeline("trip", SqliteStore(sys.argv[1])), team()
    for task in ("one", "two"):
        await group.run(task=task)
        await timeline.save_state(group)
    async for message in group.run_stream(task="three"):
        if getattr(message, "source", "") == "scout":
            os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


def test_a_team_that_is_killed_in_a_turn_goes_on_after_the_last_saved_one(tmp_path: Path) -> None:
    place = tmp_path / "store"
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(place)], cwd=ROOT, capture_output=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr

    async def go_on(store: SqliteStore) -> list[str]:
        group = team()
        timeline = TeamTimeline("trip", store)
        await timeline.load_state(group)
        await group.run(task="three")
        await timeline.save_state(group)
        return [text for text in await said(group) if " " not in text]

    with SqliteStore(place) as store:
        assert run(go_on(store)) == ["one", "two", "three"]
        assert [len(Timeline("trip", store).history()), store.check().problems] == [3, ()]
