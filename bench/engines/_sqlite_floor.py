"""One SQLite database in WAL mode, as anybody would write it."""

from __future__ import annotations

import pickle
import sqlite3
from typing import Any

from bench._model import Place

SYNCHRONOUS = {"full": "FULL", "relaxed": "NORMAL"}

_TABLES = (
    "CREATE TABLE IF NOT EXISTS versions (number INTEGER PRIMARY KEY, branch TEXT, data BLOB)",
    "CREATE TABLE IF NOT EXISTS keys (name TEXT PRIMARY KEY, data BLOB)",
)


class Versions:
    """Rows with pickled data, one for each commit. The checkpoint interval is Ropewalk's."""

    def __init__(self, place: Place) -> None:
        self._branch = place.branch
        path = place.folder / "floor.db"
        self.db = sqlite3.connect(path, isolation_level=None, timeout=60)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute(f"PRAGMA synchronous = {SYNCHRONOUS[place.durability]}")
        self.db.execute("PRAGMA wal_autocheckpoint = 4000")
        for table in _TABLES:
            self.db.execute(table)

    def add(self, value: Any) -> None:
        """One transaction with one row."""
        self.db.execute("BEGIN IMMEDIATE")
        self.db.execute(
            "INSERT INTO versions (branch, data) VALUES (?, ?)", (self._branch, dump(value))
        )
        self.db.execute("COMMIT")

    def newest(self) -> Any:
        """What was added last."""
        asked = "SELECT data FROM versions WHERE branch = ? ORDER BY number DESC LIMIT 1"
        return pickle.loads(self.db.execute(asked, (self._branch,)).fetchone()[0])

    def all(self) -> list[Any]:
        """Everything that was added, in order."""
        asked = "SELECT data FROM versions WHERE branch = ? ORDER BY number"
        return [pickle.loads(row[0]) for row in self.db.execute(asked, (self._branch,))]


def dump(value: Any) -> bytes:
    """The bytes of a row."""
    return pickle.dumps(value, protocol=5)
