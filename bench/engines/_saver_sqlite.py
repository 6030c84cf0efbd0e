"""LangGraph's SqliteSaver, as durable as Ropewalk: WAL, and synchronous = FULL."""

from __future__ import annotations

import sqlite3
from importlib import import_module
from typing import Any

from bench._model import Place
from bench.engines._saver import Saver


class Sqlite(Saver):
    """One saver on one connection, as its documentation opens it."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self._connection = sqlite3.connect(
            place.folder / "checkpoints.sqlite", check_same_thread=False
        )
        self._saver: Any = import_module("langgraph.checkpoint.sqlite").SqliteSaver(
            self._connection
        )
        self._saver.setup()
        self._connection.execute("PRAGMA synchronous = FULL")

    def checkpointer(self) -> Any:
        return self._saver

    def close(self) -> None:
        self._connection.close()


class SqliteDelta(Sqlite):
    """The same for graphs with a DeltaChannel."""

    delta = True
