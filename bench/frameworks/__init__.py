"""Conversations as frameworks keep them: one module for each framework, with all its sides."""

from __future__ import annotations

import json
import sqlite3
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from bench._model import Engine, Place
from bench._text import Text

USER, CALL, RESULT, ANSWER = 200, 60, 1000, 600
"""How many characters each part of a turn has."""


class Turn(NamedTuple):
    """What a user says, the argument and the result of one call of a tool, and the answer."""

    user: str
    call: str
    result: str
    answer: str


def turns(count: int, seed: int = 8) -> list[Turn]:
    """Turns of about 1.9 KB, no two alike."""
    text = Text(seed)
    return [Turn(*map(text.prose, (USER, CALL, RESULT, ANSWER))) for _ in range(count)]


class Session(ABC):
    """One conversation."""

    @abstractmethod
    async def turn(self, turn: Turn) -> None:
        """Take a turn; it is stored when this returns."""

    async def end(self) -> None:  # noqa: B027 - most have nothing to end
        """No turn follows."""


class Conversations(Engine):
    """The conversations of a framework, as one side keeps them in a folder."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place = place

    async def open(self) -> None:
        """Open what all sessions share."""

    @abstractmethod
    async def session(self, name: str, ahead: list[Turn]) -> Session:
        """A new conversation, with the turns that will be taken, for its scripted model."""

    async def texts(self, name: str) -> list[str] | None:
        """The texts of a conversation of another object, read back; None if nothing lasts."""
        return None

    async def shut(self) -> None:
        """Close what is open."""

    def commit(self, value: Any) -> None:
        raise NotImplementedError("conversations take turns")

    def read(self) -> Any:
        raise NotImplementedError("conversations take turns")


class Rows:
    """States of sessions in SQLite, each replaced by the next, durable on return."""

    def __init__(self, place: Place) -> None:
        self._db = sqlite3.connect(place.folder / "states.sqlite", isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("CREATE TABLE IF NOT EXISTS states (name TEXT PRIMARY KEY, state TEXT)")

    def put(self, name: str, state: Any) -> None:
        """Save a state."""
        self._db.execute("REPLACE INTO states VALUES (?, ?)", (name, json.dumps(state)))

    def get(self, name: str) -> Any:
        """The state that was saved last."""
        ((state,),) = self._db.execute("SELECT state FROM states WHERE name = ?", (name,))
        return json.loads(state)

    def close(self) -> None:
        """Close the database."""
        self._db.close()
