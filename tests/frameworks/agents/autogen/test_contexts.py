"""Model contexts that append to a transcript, alone and in a team."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import FunctionCall, Image
from autogen_core.model_context import UnboundedChatCompletionContext
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    SystemMessage,
    UserMessage,
)
from autogen_ext.models.replay import ReplayChatCompletionClient
from PIL import Image as Picture

from ropewalk import MemoryStore, SqliteStore, Store
from ropewalk.adapters.autogen import RopewalkContext, TeamTimeline
from ropewalk.errors import NotAllowed
from ropewalk.testing import SessionContract, SessionKit
from ropewalk.threads import ThreadCheckpointer
from tests.frameworks.turn import ROOT

MESSAGES: list[LLMMessage] = [
    SystemMessage(content="be brief"),
    UserMessage(content=["what is this?", Image(Picture.new("RGB", (2, 2)))], source="user"),
    AssistantMessage(
        content=[FunctionCall(id="1", name="look", arguments='{"at": "it"}')],
        thought="hm",
        source="scout",
    ),
    FunctionExecutionResultMessage(
        content=[FunctionExecutionResult(content="a dot", name="look", call_id="1", is_error=False)]
    ),
    AssistantMessage(content="A dot.", source="scout"),
]


class Kit(SessionKit):
    adapter = "ropewalk.adapters.autogen"
    entry = "RopewalkContext"
    framework = "autogen_core"
    extra = "autogen"
    stores_whole_turns = False
    lacks: ClassVar = {}

    def open(self, store: Store, id: str) -> RopewalkContext:
        return RopewalkContext(id, ThreadCheckpointer(store))

    async def say(self, session: RopewalkContext, text: str) -> None:
        model = ReplayChatCompletionClient([f"You said: {text}"])
        await AssistantAgent("scout", model, model_context=session).run(task=text)
        await session.save_state()

    async def items(self, session: RopewalkContext) -> list[Any]:
        return [one.model_dump() for one in await session.get_messages()]

    async def change(self, session: RopewalkContext, old: str, new: str) -> None:
        for message in await session.get_messages():
            if message.content == old:
                message.content = new
        await session.save_state()

    async def fork(self, session: RopewalkContext, turns: int, id: str) -> RopewalkContext:
        (turn,) = [one for one in session.transcript.turns() if one.number == 2 * turns]
        fork = await session.transcript.afork(id, at=turn.id)
        return RopewalkContext(id, fork.threads)


@pytest.fixture
def redis(redis_url: str) -> str:
    return f"{redis_url}?durability=relaxed"


class TestSessions(SessionContract):
    kit = Kit
    engines: ClassVar = {
        "memory": "",
        "sqlite": "",
        "files": "",
        "postgres": "postgres_url",
        "redis": "redis",
    }


def run(work: Any) -> Any:
    return asyncio.run(work)


def test_every_message_comes_back_and_is_shown() -> None:
    async def talk() -> tuple[list[LLMMessage], list[str]]:
        threads = ThreadCheckpointer(MemoryStore())
        context = RopewalkContext("scout", threads)
        for message in MESSAGES:
            await context.add_message(message)
        found = await RopewalkContext("scout", threads).get_messages()
        shown = threads.list_messages({"thread_id": "scout"})
        return found, [f"{one.role} {one.text}" for one in shown]

    found, shown = run(talk())

    assert [one.model_dump() for one in found] == [one.model_dump() for one in MESSAGES]
    assert [one.split()[0] for one in shown] == ["system", "user", "assistant", "tool", "assistant"]
    assert shown[3:] == ["tool a dot", "assistant A dot."]


def test_the_state_is_small_and_goes_back_to_where_it_was_saved() -> None:
    async def talk() -> None:
        context = RopewalkContext("scout", MemoryStore())
        for number in range(100):
            await context.add_message(UserMessage(content=f"{number} " * 50, source="user"))
        state = json.loads(json.dumps(await context.save_state()))
        assert len(json.dumps(state)) < 200
        await context.add_message(AssistantMessage(content="forget this", source="scout"))
        await context.load_state(state)
        assert len(await context.get_messages()) == 100
        assert state == await context.save_state() or context.transcript.count() == 100
        again = RopewalkContext("scout", context.transcript.threads)
        assert await again.get_messages() == await context.get_messages()

    run(talk())


def test_a_state_in_another_context_is_a_fork() -> None:
    async def talk() -> None:
        threads = ThreadCheckpointer(MemoryStore())
        first, second = RopewalkContext("first", threads), RopewalkContext("second", threads)
        await first.add_message(UserMessage(content="one", source="user"))
        state = await first.save_state()
        await first.add_message(UserMessage(content="two", source="user"))
        await second.load_state(state)
        await second.add_message(UserMessage(content="other", source="user"))
        said = [[m.content for m in await one.get_messages()] for one in (first, second)]
        assert said == [["one", "two"], ["one", "other"]]
        await second.load_state(await first.save_state())  # Not empty any more: it is replaced.
        assert [m.content for m in await second.get_messages()] == ["one", "two"]

    run(talk())


def test_a_state_gives_nothing_of_another_user() -> None:
    async def talk() -> None:
        threads = ThreadCheckpointer(MemoryStore())
        bob = RopewalkContext("one", threads, user_id="bob")
        await bob.add_message(UserMessage(content="a secret", source="user"))
        for user in ("eve", None):
            other = RopewalkContext("two", threads, user_id=user)
            with pytest.raises(NotAllowed):
                await other.load_state({**await bob.save_state(), "head": "main"})
            assert await other.get_messages() == []

    run(talk())


def test_a_state_of_another_model_context_is_taken_over() -> None:
    async def talk() -> None:
        theirs = UnboundedChatCompletionContext(initial_messages=MESSAGES)
        context = RopewalkContext("scout", MemoryStore())
        await context.load_state(await theirs.save_state())
        found = await context.get_messages()
        assert [one.model_dump() for one in found] == [one.model_dump() for one in MESSAGES]

    run(talk())


def test_initial_messages_begin_a_thread_once_and_a_buffer_limits_what_the_model_sees() -> None:
    async def talk() -> None:
        threads = ThreadCheckpointer(MemoryStore())
        for _ in range(2):
            context = RopewalkContext("scout", threads, initial_messages=MESSAGES, buffer_size=2)
            assert [m.content for m in await context.get_messages()] == ["A dot."]
        assert context.transcript.count() == len(MESSAGES)
        await context.clear()
        assert await context.get_messages() == [] and context.transcript.count() == 0

    run(talk())


def test_a_conversation_goes_on_after_tasks_that_were_cancelled_anywhere() -> None:
    async def talk() -> None:
        context = RopewalkContext("scout", MemoryStore())
        for steps in range(12):
            begun = asyncio.create_task(
                context.add_message(UserMessage(content=f"cancelled after {steps}", source="user"))
            )
            for _ in range(steps):
                await asyncio.sleep(0)
            begun.cancel()
            await context.add_message(UserMessage(content=f"after {steps}", source="user"))
        found = [one.content for one in await context.get_messages()]
        assert found == [one["content"] for one in context.transcript.items()]
        assert [text for text in found if str(text).startswith("after")] == [
            f"after {steps}" for steps in range(12)
        ]

    run(talk())


def team(threads: ThreadCheckpointer[Any], trip: str) -> RoundRobinGroupChat:
    return RoundRobinGroupChat(
        [
            AssistantAgent(
                name,
                ReplayChatCompletionClient([f"{name} {turn}" for turn in range(20)]),
                model_context=RopewalkContext(f"{trip}/{name}", threads),
            )
            for name in ("scout", "driver")
        ],
        termination_condition=MaxMessageTermination(3),
    )


def test_a_team_is_rolled_back_and_forked_with_the_contexts_of_its_agents() -> None:
    async def talk() -> None:
        store = MemoryStore()
        threads = ThreadCheckpointer(store)
        group, timeline = team(threads, "trip"), TeamTimeline("trip", store)
        for task in ("one", "two", "three"):
            await group.run(task=task)
            await timeline.save_state(group)
        fork = timeline.fork("other", timeline.history()[2].id)
        other = team(threads, "other")
        await fork.load_state(other)
        timeline.rollback()
        await timeline.load_state(group)
        for trip, tasks in (("trip", ["one", "two"]), ("other", ["one"])):
            for name in ("scout", "driver"):
                messages = await RopewalkContext(f"{trip}/{name}", threads).get_messages()
                said = [str(one.content) for one in messages]
                assert [text for text in said if " " not in text] == tasks
        await other.run(task="four")
        await fork.save_state(other)

    run(talk())


KILLED = """
import asyncio, os, signal, sys
from ropewalk import SqliteStore
from ropewalk.adapters.autogen import *
from ropewalk.threads import ThreadCheckpointer
from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.replay import ReplayChatCompletionClient
from ropewalk.adapters.autogen import RopewalkContext
from autogen_core.models import ModelInfo

def find(what: str) -> str:
    "Find something."
    print("found", flush=True)
    return "it is here"

class Deadly(ReplayChatCompletionClient):
    async def create(self, messages, **options):
        if len(messages) > 3:
            os.kill(os.getpid(), signal.SIGKILL)
        from autogen_core.models import CreateResult, RequestUsage
        from autogen_core import FunctionCall
        call = FunctionCall(id="1", name="find", arguments='{"what": "it"}')
        return CreateResult(finish_reason="function_calls", content=[call],
                            usage=RequestUsage(1, 1), cached=False)

info = ModelInfo(vision=False, function_calling=True, json_output=False, family="x",
                 structured_output=False)
agent = AssistantAgent("scout", Deadly(["x"], model_info=info), tools=[find],
                       reflect_on_tool_use=True, system_message="find things",
                       model_context=RopewalkContext("scout", SqliteStore(sys.argv[1])))
asyncio.run(agent.run(task="where is it?"))
"""


def test_an_agent_that_is_killed_goes_on_with_what_its_tools_gave(tmp_path: Path) -> None:
    place = tmp_path / "store"
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(place)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert killed.stdout == "found\n"

    async def go_on(store: SqliteStore) -> list[str]:
        context = RopewalkContext("scout", store)
        model = ReplayChatCompletionClient(["Here."])
        result = await AssistantAgent("scout", model, model_context=context).run()
        assert result.messages[-1].to_text() == "Here."
        return [one.type for one in await context.get_messages()]

    with SqliteStore(place) as store:
        assert run(go_on(store)) == [
            "UserMessage",
            "AssistantMessage",
            "FunctionExecutionResultMessage",
            "AssistantMessage",
        ]
        assert store.check().problems == ()
