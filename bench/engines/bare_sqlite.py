"""The floor below everything: a transaction that writes only the new bytes."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

from bench._model import Engine, EngineInfo, Place
from bench.engines._replay import replayed
from bench.engines._sqlite_floor import Versions, dump


class BareSqlite(Engine):
    """It is told what changed, and inserts that and its path. Reading replays all rows."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self._versions = Versions(place)

    def commit(self, value: Any) -> None:
        self._versions.add(((), value))

    def change(self, value: Any, path: tuple[str | int, ...], new: Any) -> None:
        self._versions.add((path, new))

    def read(self) -> Any:
        return replayed(self._versions.all())

    def load(self, pairs: Mapping[str, Any]) -> None:
        db = self._versions.db
        db.execute("BEGIN IMMEDIATE")
        rows = ((name, dump(value)) for name, value in pairs.items())
        db.executemany("INSERT INTO keys VALUES (?, ?)", rows)
        db.execute("COMMIT")

    def put(self, key: str, value: Any) -> None:
        db = self._versions.db
        db.execute("BEGIN IMMEDIATE")
        db.execute("UPDATE keys SET data = ? WHERE name = ?", (dump(value), key))
        db.execute("COMMIT")

    def get(self, key: str) -> Any:
        found = self._versions.db.execute("SELECT data FROM keys WHERE name = ?", (key,))
        return pickle.loads(found.fetchone()[0])

    def close(self) -> None:
        self._versions.db.close()


ENGINE = EngineInfo(
    name="bare-sqlite",
    label="floor: bare SQLite transaction with the new bytes",
    open=BareSqlite,
    environment="ours",
    note="it is told what changed; WAL, synchronous=FULL for full and NORMAL for relaxed; "
    "for keys it updates a row in place and keeps no history",
)
