"""The history of agents' sessions, kept as transcripts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pytest
from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    Message,
)

from ropewalk import MemoryStore, Store
from ropewalk.adapters.agent_framework import RopewalkHistoryProvider
from ropewalk.testing import SessionContract, SessionKit
from ropewalk.threads import ThreadCheckpointer


class Scripted(FunctionInvocationLayer, BaseChatClient):
    """A model that repeats what it was told, and looks once before it answers a question."""

    def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Mapping[str, Any], **more: Any
    ) -> Any:
        async def answer() -> ChatResponse:
            last = messages[-1]
            if last.role == "user" and last.text.endswith("where?"):
                call = Content.from_function_call("1", "look", arguments={"at": "the map"})
                return ChatResponse(messages=Message("assistant", [call]))
            said = last.text or last.contents[0].result
            return ChatResponse(messages=Message("assistant", [f"You said: {said}"]))

        return answer()


def look(at: str) -> str:
    """Look at something."""
    return f"{at} shows Rome"


class Kit(SessionKit):
    adapter = "ropewalk.adapters.agent_framework"
    entry = "RopewalkHistoryProvider"
    framework = "agent_framework"
    extra = "agent-framework"
    lacks: ClassVar = {"change": "a run hands over its own messages only"}

    def open(self, store: Store, id: str) -> Any:
        return RopewalkHistoryProvider(ThreadCheckpointer(store)), id

    async def say(self, session: Any, text: str) -> None:
        provider, id = session
        agent = Agent(Scripted(), context_providers=[provider], tools=[look])
        await agent.run(text, session=AgentSession(session_id=id))

    async def items(self, session: Any) -> list[Any]:
        provider, id = session
        return [one.to_dict() for one in await provider.get_messages(id)]

    async def fork(self, session: Any, turns: int, id: str) -> Any:
        provider, own = session
        await provider.transcript(own).afork(id, at=turns)
        return provider, id


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


def test_a_turn_with_a_tool_comes_back_and_is_shown() -> None:
    async def talk() -> tuple[list[Any], list[str]]:
        threads = ThreadCheckpointer(MemoryStore())
        for _ in range(2):
            await Kit().say((RopewalkHistoryProvider(threads), "chat"), "where?")
        kept = await RopewalkHistoryProvider(threads).get_messages("chat")
        shown = threads.list_messages({"thread_id": "chat"})
        return kept, [f"{one.role} {one.text}{len(one.tool_calls)}" for one in shown]

    kept, shown = asyncio.run(talk())

    assert [one.role for one in kept] == ["user", "assistant", "tool", "assistant"] * 2
    assert kept[2].contents[0].result == "the map shows Rome"
    assert shown[:4] == [
        "user where?0",
        "assistant 1",
        "tool the map shows Rome0",
        "assistant You said: the map shows Rome0",
    ]


def test_without_a_session_nothing_is_kept_and_a_limit_reads_the_last_messages() -> None:
    async def talk() -> None:
        threads = ThreadCheckpointer(MemoryStore())
        provider = RopewalkHistoryProvider(threads)
        await provider.save_messages(None, [Message("user", ["hi"])])
        assert await provider.get_messages(None) == []
        await provider.save_messages("chat", [Message("user", [f"{n}"]) for n in range(9)])
        last = RopewalkHistoryProvider(threads, limit=2)
        assert [one.text for one in await last.get_messages("chat")] == ["7", "8"]

    asyncio.run(talk())
