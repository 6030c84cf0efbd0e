"""LlamaIndex: the `Memory` of an agent on a chat store, called as `FunctionAgent` calls it."""

from __future__ import annotations

from typing import Any

from llama_index.core.llms import ChatMessage, MessageRole
from llama_index.core.memory import Memory
from llama_index.core.storage.chat_store.sql import SQLAlchemyChatStore

from bench.frameworks import Conversations, Session, Turn

_READS = 3
"""How often an agent reads its memory in a turn, beside the first time."""


class Talk(Session):
    """A memory."""

    def __init__(self, name: str, store: Any) -> None:
        # The tokenizer of the framework would be most of the time.
        self._memory: Any = Memory.from_defaults(
            session_id=name, chat_store=store, tokenizer_fn=str.split
        )
        self._count = 0

    async def turn(self, turn: Turn) -> None:
        memory, self._count = self._memory, self._count + 1
        call = {"tool_call_id": f"call-{self._count}"}
        await memory.aput(ChatMessage(turn.user, role=MessageRole.USER))
        await memory.aget()
        said = [
            ChatMessage(turn.call, role=MessageRole.ASSISTANT, additional_kwargs=call),
            ChatMessage(turn.result, role=MessageRole.TOOL, additional_kwargs=call),
            ChatMessage(turn.answer, role=MessageRole.ASSISTANT),
        ]
        await memory.aput_messages(said)
        for _ in range(_READS):
            await memory.aget()


class Alone(Conversations):
    """The framework's chat store in memory."""

    store: Any

    async def open(self) -> None:
        self.store = SQLAlchemyChatStore(table_name="chat")

    async def session(self, name: str, ahead: list[Turn]) -> Talk:
        return Talk(name, self.store)

    async def shut(self) -> None:
        if self.store._async_engine is not None:
            await self.store._async_engine.dispose()


class Own(Alone):
    """The framework's `SQLAlchemyChatStore` on SQLite."""

    async def open(self) -> None:
        uri = f"sqlite+aiosqlite:///{self.place.folder / 'chat.sqlite'}"
        self.store = SQLAlchemyChatStore(table_name="chat", async_database_uri=uri)

    async def texts(self, name: str) -> list[str]:
        found = await self.store.get_messages(name, status=None)
        return [str(one.content) for one in found]


class Ours(Own):
    """`RopewalkChatStore` on the embedded store."""

    async def open(self) -> None:
        from ropewalk.adapters.llamaindex import RopewalkChatStore

        self.store = RopewalkChatStore(str(self.place.folder / "agent.ropewalk"))

    async def shut(self) -> None:
        self.store.close()
