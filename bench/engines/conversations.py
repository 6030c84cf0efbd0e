"""Sides that hold a conversation."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

from bench._clock import Stopwatch
from bench._model import Engine, EngineInfo, Place, our_engine, ours


class Talk(Engine):
    """One conversation. What is handed in and given out is shared with nobody."""

    @abstractmethod
    def message(self, item: dict[str, Any]) -> Any:
        """A message as the side takes it, from its id, its role and its text."""

    def append(self, message: Any) -> None:
        """Append one message."""
        raise NotImplementedError("this side is awaited")

    def append_each(self, messages: Sequence[Any], watch: Stopwatch) -> None:
        """Append messages one by one, each on the watch."""
        for message in messages:
            watch(partial(self.append, message))

    @abstractmethod
    def page(self, count: int) -> list[Any]:
        """The latest messages, the side's own objects, the oldest of them first."""

    @abstractmethod
    def text(self, message: Any) -> str:
        """What a message says."""

    def make_state(self, state: dict[str, Any]) -> Any:
        """A state as the side takes it."""
        return state

    def append_with(self, message: Any, state: Any) -> None:
        """Append a message and put the state that goes with it."""
        raise NotImplementedError("this side keeps no state")

    def put_state(self, state: Any) -> None:
        """Put a state."""
        raise NotImplementedError("this side keeps no state")

    def state(self) -> Any:
        """The newest state, which is the caller's own."""
        raise NotImplementedError("this side keeps no state")

    def search(self, word: str, count: int) -> list[Any]:
        """The first messages that have a word."""
        raise NotImplementedError("this side has no search")

    def settle(self) -> None:
        """Wait for what a search began behind."""

    def commit(self, value: Any) -> None:
        """Append what is new in a list of all messages."""
        messages = [self.message(item) for item in value[len(self.read()) :]]
        self.append_each(messages, Stopwatch())

    def read(self) -> Any:
        """The texts of all messages."""
        return [self.text(one) for one in self.page(1_000_000)]


def talk(engine: Engine) -> Talk:
    """The engine, which must be one that keeps a conversation."""
    assert isinstance(engine, Talk), f"{type(engine).__name__} keeps no conversation"
    return engine


class Session(Talk):
    """One session. All that it offers is awaited, and runs on threads of the event loop."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        made = import_module("agents.memory").SQLiteSession
        self._session = made("bench", place.folder / "session.db")
        self._runner = asyncio.Runner()

    def message(self, item: dict[str, Any]) -> Any:
        return dict(item)

    def append_each(self, messages: Sequence[Any], watch: Stopwatch) -> None:
        self._runner.run(self._append_each(messages, watch))

    async def _append_each(self, messages: Sequence[Any], watch: Stopwatch) -> None:
        for message in messages:
            await watch.waits(partial(self._session.add_items, [message]))

    def page(self, count: int) -> list[Any]:
        found: list[Any] = self._runner.run(self._session.get_items(count))
        return found

    def text(self, message: Any) -> str:
        said: str = message["content"]
        return said

    def synchronous(self) -> int:
        """What SQLite says about the syncs of a connection of the session's: 2 is FULL."""
        with self._session._locked_connection() as connection:
            (level,) = connection.execute("PRAGMA synchronous").fetchone()
        return int(level)

    def close(self) -> None:
        self._runner.close()
        self._session.close()


def _open_openai_session(place: Place) -> Engine:
    return Session(place)


_CONFIG = {"thread_id": "bench", "user_id": "somebody"}


def _state_class(base: Any) -> Any:
    """The framework's own kind of state, with the values of an application."""
    return import_module("pydantic").create_model("State", __base__=base, values=(dict, ...))


class Copied(Talk):
    """What goes in and what comes out is copied: it stores and hands out the same objects."""

    def __init__(self) -> None:
        super().__init__()
        self._chat = import_module("pyagenity.checkpointer").InMemoryCheckpointer()
        self._message = import_module("pyagenity.utils").Message
        self._state_class = _state_class(import_module("pyagenity.state").AgentState)
        self._count = 0

    def message(self, item: dict[str, Any]) -> Any:
        return self._message.text_message(item["content"], role=item["role"], message_id=item["id"])

    def append(self, message: Any) -> None:
        self._chat.put_messages(_CONFIG, [deepcopy(message)])
        self._count += 1

    def page(self, count: int) -> list[Any]:
        # It lists from the beginning only, so the caller has to know how many there are.
        offset = max(0, self._count - count)
        return deepcopy(self._chat.list_messages(_CONFIG, offset=offset, limit=count))

    def text(self, message: Any) -> str:
        return "".join(block.text for block in message.content)

    def make_state(self, state: dict[str, Any]) -> Any:
        return self._state_class(values=state)

    def append_with(self, message: Any, state: Any) -> None:
        self.append(message)
        self.put_state(state)

    def put_state(self, state: Any) -> None:
        self._chat.put_state(_CONFIG, deepcopy(state))

    def state(self) -> Any:
        return deepcopy(self._chat.get_state(_CONFIG))

    def search(self, word: str, count: int) -> list[Any]:
        return deepcopy(self._chat.list_messages(_CONFIG, word, limit=count))


def _open_pyagenity(place: Place) -> Engine:
    return Copied()


ENGINES = (
    EngineInfo(
        name="openai-session",
        label="OpenAI Agents SQLiteSession",
        open=_open_openai_session,
        environment="python-3.12",
        package="openai-agents",
        imports="agents.memory",
        note="add_items; it sets WAL and leaves `synchronous` as SQLite was built, usually "
        "FULL, with which an item survives a power loss; no state, no search, no ids, no history",
    ),
    EngineInfo(
        name="pyagenity",
        label="pyagenity InMemoryCheckpointer, with deep copies",
        open=_open_pyagenity,
        environment="python-3.12",
        package="pyagenity",
        imports="pyagenity.checkpointer",
        note="a deep copy of what goes in and of what comes out, which it leaves out; no "
        "history, no users, and a search that looks through the reprs of all messages",
    ),
    our_engine(
        name="threads-memory",
        label="Ropewalk, memory",
        open=lambda place: ours().ThreadTalk(),
        environment="python-3.12",
        note="a commit for each message, with its history",
    ),
    our_engine(
        name="threads-relaxed",
        label="Ropewalk, SQLite, relaxed",
        open=lambda place: ours().ThreadOnDisk(replace(place, durability="relaxed")),
        environment="python-3.12",
        note="relaxed: a power loss may take the last messages",
    ),
    our_engine(
        name="threads-sqlite",
        label="Ropewalk, SQLite",
        open=lambda place: ours().ThreadOnDisk(place),
        environment="python-3.12",
        note="put_messages; durable: what was put survives a power loss",
    ),
    our_engine(
        name="threads-sqlite-async",
        label="Ropewalk, SQLite, awaited",
        open=lambda place: ours().AwaitedThread(place),
        environment="python-3.12",
        note="aput_messages; durable as well",
    ),
)
