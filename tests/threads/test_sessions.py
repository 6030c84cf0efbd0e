"""The contract of sessions, held by transcripts themselves: saved whole, and appended to."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from ropewalk import Store
from ropewalk.testing import SessionContract, SessionKit
from ropewalk.threads import ThreadCheckpointer, Transcript

ENGINES = {"memory": "", "sqlite": "", "files": "", "postgres": "postgres_url", "redis": "redis"}


def turn(text: str) -> list[dict[str, Any]]:
    return [
        {"role": "user", "content": text},
        {"role": "assistant", "content": [{"type": "text", "text": f"You said: {text}"}]},
    ]


class Keeper:
    """Keeps the history in memory, and saves all of it after each turn."""

    def __init__(self, transcript: Transcript) -> None:
        self.transcript = transcript
        self.history = transcript.items()


class SavingKit(SessionKit):
    def open(self, store: Store, id: str) -> Keeper:
        return Keeper(Transcript(id, ThreadCheckpointer(store)))

    def say(self, session: Keeper, text: str) -> None:
        session.history += turn(text)
        try:
            session.transcript.save(session.history, {"turns": len(session.history) // 2})
        except BaseException:
            del session.history[-2:]
            raise

    def items(self, session: Keeper) -> list[Any]:
        return session.transcript.items()

    def change(self, session: Keeper, old: str, new: str) -> None:
        for item in session.history:
            if item["content"] == old:
                item["content"] = new
        session.transcript.save(session.history)

    def fork(self, session: Keeper, turns: int, id: str) -> Keeper:
        return Keeper(session.transcript.fork(id, at=turns))


class AppendingKit(SessionKit):
    lacks: ClassVar = {"change": "items are only appended"}

    async def open(self, store: Store, id: str) -> Transcript:
        made = Transcript(id, ThreadCheckpointer(store))
        await made.ahead()
        return made

    async def say(self, session: Transcript, text: str) -> None:
        await session.aappend(turn(text), expect=session.seen)

    async def items(self, session: Transcript) -> list[Any]:
        return await session.aitems()

    async def fork(self, session: Transcript, turns: int, id: str) -> Transcript:
        return await session.afork(id, at=turns)


@pytest.fixture
def redis(redis_url: str) -> str:
    return f"{redis_url}?durability=relaxed"


class TestSaving(SessionContract):
    kit = SavingKit
    engines = ENGINES


class TestAppending(SessionContract):
    kit = AppendingKit
    engines = ENGINES
