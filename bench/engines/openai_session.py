"""OpenAI Agents' SQLiteSession on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import Any

from bench._clock import Stopwatch
from bench._model import Engine, EngineInfo, Place
from bench.engines._talk import Talk


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


def _open(place: Place) -> Engine:
    return Session(place)


ENGINE = EngineInfo(
    name="openai-session",
    label="OpenAI Agents SQLiteSession",
    open=_open,
    environment="python-3.12",
    package="openai-agents",
    imports="agents.memory",
    note="add_items; it sets WAL and leaves `synchronous` as SQLite was built, usually FULL, with "
    "which an item survives a power loss; no state, no search, no ids, no history",
)
