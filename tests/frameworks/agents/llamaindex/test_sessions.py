"""The contract of sessions, held by a `Memory` whose messages are in a chat store."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from llama_index.core.llms import ChatMessage
from llama_index.core.memory import Memory

from ropewalk import Store
from ropewalk.adapters.llamaindex import RopewalkChatStore
from ropewalk.testing import SessionContract, SessionKit


class MemoryKit(SessionKit):
    adapter = "ropewalk.adapters.llamaindex"
    entry = "RopewalkChatStore"
    framework = "llama_index"
    extra = "llamaindex"

    def open(self, store: Store, id: str) -> Memory:
        return _memory(RopewalkChatStore(store), id)

    async def say(self, session: Memory, text: str) -> None:
        answer = ChatMessage(role="assistant", content=f"You said: {text}")
        await session.aput_messages([ChatMessage(role="user", content=text), answer])

    async def items(self, session: Memory) -> list[ChatMessage]:
        found: list[ChatMessage] = await session.aget_all()
        return found

    async def change(self, session: Memory, old: str, new: str) -> None:
        messages = await session.aget_all()
        for message in messages:
            if message.content == old:
                message.content = new
        await session.aset(messages)

    def fork(self, session: Memory, turns: int, id: str) -> Memory:
        chats: Any = session.sql_store
        chats.transcript(session.session_id).fork(id, at=turns)
        return _memory(chats, id)


def _memory(chats: RopewalkChatStore, id: str) -> Memory:
    return Memory.from_defaults(
        session_id=id, chat_store=chats, token_limit=1_000_000, tokenizer_fn=str.split
    )


@pytest.fixture
def redis(redis_url: str) -> str:
    return f"{redis_url}?durability=relaxed"


class TestMemory(SessionContract):
    kit = MemoryKit
    engines: ClassVar = {
        "memory": "",
        "sqlite": "",
        "files": "",
        "postgres": "postgres_url",
        "redis": "redis",
    }
