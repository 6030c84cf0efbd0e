"""The messages of a memory: as in the framework's own store, with a history."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.base.llms.types import ImageBlock, TextBlock, ThinkingBlock, ToolCallBlock
from llama_index.core.llms import ChatMessage
from llama_index.core.memory import Memory
from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore, MessageStatus
from llama_index.core.storage.chat_store.sql import SQLAlchemyChatStore
from sqlalchemy.ext.asyncio import create_async_engine

from ropewalk import MemoryStore
from ropewalk import open as open_store
from ropewalk.adapters.llamaindex import RopewalkChatStore
from ropewalk.threads import ThreadCheckpointer
from tests.engines import ENGINES, Opener, opening
from tests.frameworks.turn import ROOT


@pytest.fixture
def chats() -> Iterator[RopewalkChatStore]:
    made = RopewalkChatStore("memory://")
    yield made
    made.close()


@asynccontextmanager
async def theirs() -> AsyncIterator[AsyncDBChatStore]:
    """The framework's own store, in memory."""
    engine = create_async_engine("sqlite+aiosqlite:///:memory:")
    yield SQLAlchemyChatStore(table_name="messages", async_engine=engine)
    await engine.dispose()


def said(number: int) -> ChatMessage:
    return ChatMessage(role="user", content=f"message {number}")


def texts(messages: list[ChatMessage]) -> list[str | None]:
    return [one.content for one in messages]


class Differential:
    """The same calls of two stores, whose answers must be equal."""

    def __init__(self, *stores: AsyncDBChatStore) -> None:
        self._stores = stores

    async def __call__(self, method: str, *arguments: Any) -> Any:
        ours, theirs = [await getattr(one, method)(*arguments) for one in self._stores]
        assert ours == theirs, (method, arguments)
        return ours


@pytest.mark.parametrize("seed", range(8))
def test_answers_as_the_frameworks_own_store(chats: RopewalkChatStore, seed: int) -> None:
    chosen, count = random.Random(seed), iter(range(10_000))

    async def compare(other: AsyncDBChatStore) -> None:
        both = Differential(chats, other)
        statuses = [None, MessageStatus.ACTIVE, MessageStatus.ARCHIVED]
        for _ in range(120):
            key, n = chosen.choice("abc"), chosen.randrange(4)
            status = chosen.choice(statuses[1:])
            match chosen.randrange(12):
                case 0 | 1 | 2:
                    await both("add_message", key, said(next(count)))
                case 3 | 4:
                    await both("add_messages", key, [said(next(count)) for _ in range(n + 1)])
                case 5:
                    await both("add_message", key, said(next(count)), status)
                case 6:
                    await both("archive_oldest_messages", key, n)
                case 7:
                    await both("delete_oldest_messages", key, n)
                case 8:
                    await both("delete_messages", key, chosen.choice(statuses))
                case 9:
                    await both("set_messages", key, [said(next(count)) for _ in range(n)], status)
                case _:
                    window = chosen.choice([(), (n + 1,), (n + 1, n)])
                    await both("get_messages", key, chosen.choice(statuses), *window)
            for one in statuses:
                await both("get_messages", key, one)
                await both("count_messages", key, one)
            keys = [sorted(await store.get_keys()) for store in both._stores]
            assert keys[0] == keys[1]

    async def go() -> None:
        async with theirs() as other:
            await compare(other)

    asyncio.run(go())


def test_a_message_comes_back_with_its_blocks(chats: RopewalkChatStore) -> None:
    messages = [
        ChatMessage(
            role="assistant",
            blocks=[
                ThinkingBlock(content="hm", num_tokens=3),
                TextBlock(text="Look:"),
                ImageBlock(image=b"\x89PNG", image_mimetype="image/png"),
                ToolCallBlock(tool_call_id="1", tool_name="look", tool_kwargs={"q": ["x"]}),
            ],
            additional_kwargs={"a": {"b": 1}},
        ),
        ChatMessage(role="tool", content="found", additional_kwargs={"tool_call_id": "1"}),
    ]
    asyncio.run(chats.add_messages("a", messages))

    assert asyncio.run(chats.get_messages("a")) == messages


def test_messages_belong_to_who_reads_them(chats: RopewalkChatStore) -> None:
    async def go() -> list[ChatMessage]:
        message = said(1)
        await chats.add_message("a", message)
        message.additional_kwargs["later"] = 1
        (read,) = await chats.get_messages("a")
        read.blocks.append(TextBlock(text="changed"))
        return await chats.get_messages("a")

    assert asyncio.run(go()) == [said(1)]


def test_sessions_of_users_are_apart() -> None:
    async def go(store: MemoryStore) -> list[Any]:
        alice, bob = (RopewalkChatStore(store, user_id=name) for name in ("alice", "bob"))
        await alice.add_message("a", said(1))
        await bob.add_message("b", said(2))
        return [await alice.get_keys(), await bob.get_keys(), await bob.get_messages("a")]

    with MemoryStore() as store:
        assert asyncio.run(go(store)) == [["a"], ["b"], []]


# Memory, and its windows.


def test_a_memory_flushes_its_oldest_messages_into_the_archive(chats: RopewalkChatStore) -> None:
    async def go(store: AsyncDBChatStore) -> list[Any]:
        memory = Memory.from_defaults(
            session_id="a",
            chat_store=store,
            token_limit=120,
            token_flush_size=40,
            tokenizer_fn=lambda text: list(text.split()),
        )
        for number in range(40):
            await memory.aput(ChatMessage(role="user", content=f"{number} one two three four"))
            await memory.aput(ChatMessage(role="assistant", content=f"{number} five six seven"))
        return [
            await memory.aget(),
            *[await store.get_messages("a", one) for one in (None, *MessageStatus)],
        ]

    async def go_theirs() -> list[Any]:
        async with theirs() as other:
            return await go(other)

    ours = asyncio.run(go(chats))

    assert ours == asyncio.run(go_theirs())
    assert len(ours[1]) == 80 and 0 < len(ours[2]) < 80


def test_only_the_active_messages_are_read(chats: RopewalkChatStore) -> None:
    async def go() -> list[str | None]:
        await chats.add_messages("a", [said(number) for number in range(500)])
        await chats.archive_oldest_messages("a", 497)
        return texts(await chats.get_messages("a"))

    assert asyncio.run(go()) == ["message 497", "message 498", "message 499"]


# History.


def test_a_session_is_forked_at_an_earlier_turn_and_shares_storage(
    chats: RopewalkChatStore,
) -> None:
    async def go() -> list[Any]:
        await chats.add_message("a", said(1))
        await chats.add_messages("a", [said(2), said(3)])
        await chats.archive_oldest_messages("a", 1)
        chats.transcript("a").fork("b", at=2)
        await chats.add_message("b", said(4))
        chats.transcript("a").rollback(to=1)
        return [texts(await chats.get_messages(key)) for key in ("a", "b")]

    assert asyncio.run(go()) == [
        ["message 1"],
        ["message 1", "message 2", "message 3", "message 4"],
    ]


def test_the_command_line_shows_a_session(tmp_path: Path) -> None:
    chats = RopewalkChatStore(tmp_path / "s", user_id="alice")
    call = ToolCallBlock(tool_call_id="1", tool_name="look_up", tool_kwargs={"q": "bees"})
    messages = [
        ChatMessage(role="user", content="Where do bees live?"),
        ChatMessage(role="assistant", blocks=[call]),
        ChatMessage(role="tool", content="In hives.", additional_kwargs={"tool_call_id": "1"}),
    ]
    asyncio.run(chats.add_messages("trip", messages))
    chats.close()
    # Where LlamaIndex is not installed.
    code = (
        "import sys; sys.modules['llama_index'] = sys.modules['workflows'] = None\n"
        "from ropewalk.cli import main; main()"
    )
    program = [sys.executable, "-c", code, "messages", "--store", str(tmp_path / "s")]
    done = subprocess.run(
        [*program, "--thread", "trip", "--user", "alice"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )

    for part in ("user", "Where do bees live?", "look_up", "tool", "In hives."):
        assert part in done.stdout


# Several at once.


@pytest.mark.parametrize("engine", ENGINES)
def test_what_several_add_is_all_there(engine: str, tmp_path: Path) -> None:
    async def go(open_one: Opener) -> list[str | None]:
        stores = [RopewalkChatStore(open_one()) for _ in range(3)]
        await asyncio.gather(
            *(stores[n % 3].add_message("a", said(n)) for n in range(30)),
            *(one.archive_oldest_messages("a", 2) for one in stores),
        )
        return texts(await stores[0].get_messages("a", None))

    with opening(engine, tmp_path) as open_one:
        found = asyncio.run(go(open_one))

    assert sorted(map(str, found)) == sorted(f"message {n}" for n in range(30))


def test_a_message_is_there_after_its_process_was_killed(tmp_path: Path) -> None:
    program = (
        "import asyncio, os, sys\n"
        "from llama_index.core.llms import ChatMessage\n"
        "from ropewalk.adapters.llamaindex import RopewalkChatStore\n"
        "async def main():\n"
        "    chats = RopewalkChatStore(sys.argv[1])\n"
        "    for n in range(5):\n"
        "        await chats.add_message('a', ChatMessage(role='user', content=str(n)))\n"
        "    os.kill(os.getpid(), 9)\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "s")], check=False)
    assert done.returncode == -9

    with open_store(tmp_path / "s") as store:
        chats = RopewalkChatStore(store)
        assert texts(asyncio.run(chats.get_messages("a"))) == list("01234")


def test_a_store_is_closed_by_who_opened_it(tmp_path: Path) -> None:
    own = RopewalkChatStore(tmp_path / "s")
    own.close()
    with MemoryStore() as store:
        RopewalkChatStore(store).close()
        RopewalkChatStore(ThreadCheckpointer(store)).close()

        assert store.spaces("") is not None
    with ThreadCheckpointer[Any](tmp_path / "shared") as threads:
        RopewalkChatStore(threads).close()

        assert threads.list_threads({}) == []
    with pytest.raises(Exception, match="closed"):
        asyncio.run(own.get_keys())


def test_a_growing_conversation_costs_what_was_added(tmp_path: Path) -> None:
    turns, chosen = 200, random.Random(7)

    def text(size: int) -> str:
        return "".join(chosen.choices("abcdefghijklmnopqrstuvwxyz ", k=size))

    async def go() -> None:
        chats = RopewalkChatStore(tmp_path / "s")
        memory = Memory.from_defaults(session_id="a", chat_store=chats, tokenizer_fn=str.split)
        for _ in range(turns):
            await memory.aput(ChatMessage(role="user", content=text(200)))
            await memory.aput_messages([ChatMessage(role="assistant", content=text(600))])
            await memory.aget()
        chats.close()

    asyncio.run(go())

    files = [one for one in tmp_path.rglob("*") if one.is_file()]
    assert sum(one.stat().st_size for one in files) < 1.5 * turns * 800
