"""Agents whose runs are stored: what they keep in `ctx.store` is not lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
from llama_index.core.agent.workflow.workflow_events import AgentWorkflowStartEvent
from llama_index.core.base.llms.types import ToolCallBlock
from llama_index.core.llms import ChatMessage
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.memory import Memory
from workflows import Context

from ropewalk import MemoryStore, Timeline
from ropewalk.adapters.llamaindex import RopewalkChatStore, RopewalkRuntime
from ropewalk.errors import InvalidInput

# Of the framework itself.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Skipping serialization of known unserializable key"),
]


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    with MemoryStore() as made:
        yield made


def answered(messages: Any, tools: Any = None) -> ChatMessage:
    """Looks something up for each message of a user, and counts what it was given."""
    if messages[-1].role == "user":
        call = ToolCallBlock(tool_call_id="1", tool_name="look", tool_kwargs={"q": "x"})
        return ChatMessage(role="assistant", blocks=[call])
    return ChatMessage(role="assistant", content=f"of {len(messages)}")


class Died(BaseException):
    pass


def agent_of(runtime: RopewalkRuntime, *, dies: bool = False) -> FunctionAgent:
    def look(q: str) -> str:
        "Look something up."
        if dies:
            raise Died
        return f"found {q}"

    with runtime.registering():
        llm = MockFunctionCallingLLM(response_generator=answered)
        return FunctionAgent(tools=[look], llm=llm)


def memory_of(store: MemoryStore) -> Memory:
    chats = RopewalkChatStore(store, user_id="alice")
    return Memory.from_defaults(session_id="chat", chat_store=chats, tokenizer_fn=str.split)


@pytest.mark.parametrize("in_chat_store", [True, False])
def test_an_agent_remembers_from_run_to_run_and_in_another_process(
    store: MemoryStore, in_chat_store: bool
) -> None:
    async def first() -> list[str]:
        agent = agent_of(RopewalkRuntime(store))
        ctx = Context(agent)
        given = {"memory": memory_of(store)} if in_chat_store else {}
        return [str(await agent.run("Look.", ctx=ctx, run_id="r", **given)) for _ in range(3)]

    async def second() -> str:
        runtime = RopewalkRuntime(store)
        agent = agent_of(runtime)
        memory = memory_of(store) if in_chat_store else None
        ctx = await runtime.restore(agent, "r", memory=memory)
        return str(await agent.run("Look.", ctx=ctx, run_id="r"))

    assert asyncio.run(first()) == ["of 3", "of 7", "of 11"]
    assert asyncio.run(second()) == "of 15"
    if in_chat_store:
        assert len(RopewalkChatStore(store, user_id="alice").transcript("chat").items()) == 16
        assert "memory" not in Timeline("r", store).get_state()["state"]


def test_an_agent_that_was_stopped_in_a_tool_calls_it_again(store: MemoryStore) -> None:
    async def first() -> None:
        agent = agent_of(RopewalkRuntime(store), dies=True)
        await agent.run("Look.", run_id="r", memory=memory_of(store))

    async def second() -> str:
        runtime = RopewalkRuntime(store)
        agent = agent_of(runtime)
        ctx = await runtime.restore(agent, "r", memory=memory_of(store))
        return str(await agent.run(ctx=ctx, run_id="r"))

    with pytest.raises(Died):
        asyncio.run(first())
    assert Timeline("r", store).history()[0].logic_step == "parse_agent_output"

    assert asyncio.run(second()) == "of 3"


def test_messages_that_are_elsewhere_are_not_forgotten_silently(store: MemoryStore) -> None:
    async def go() -> None:
        runtime = RopewalkRuntime(store)
        agent = agent_of(runtime)
        await agent.run("Look.", run_id="r", memory=memory_of(store))
        await runtime.restore(agent, "r")

    with pytest.raises(InvalidInput, match=r"Memory\.from_defaults\(session_id='chat'"):
        asyncio.run(go())


def test_a_start_of_an_agent_needs_no_more_than_a_message(store: MemoryStore) -> None:
    async def go() -> str:
        agent = agent_of(RopewalkRuntime(store))
        start = AgentWorkflowStartEvent(user_msg="Look.")
        return str(await super(FunctionAgent, agent).run(start_event=start, run_id="r"))

    assert asyncio.run(go()) == "of 3"


def test_agents_of_a_workflow_are_stored_as_one_run(store: MemoryStore) -> None:
    async def go() -> str:
        runtime = RopewalkRuntime(store)
        agent = agent_of(runtime)
        with runtime.registering():
            team = AgentWorkflow(agents=[agent], root_agent=agent.name)
        return str(await team.run("Look.", run_id="r"))

    assert asyncio.run(go()) == "of 3"
    assert Timeline("r", store).history()[0].description.endswith("StopEvent")
