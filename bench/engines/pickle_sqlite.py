"""The floor of those who pickle into SQLite: the whole state again at every step."""

from __future__ import annotations

from typing import Any

from bench._model import Engine, EngineInfo, Place
from bench.engines._sqlite_floor import Versions


class PickleSqlite(Engine):
    """A row for each commit, with the whole state."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self._versions = Versions(place)

    def commit(self, value: Any) -> None:
        self._versions.add(value)

    def read(self) -> Any:
        return self._versions.newest()

    def close(self) -> None:
        self._versions.db.close()


ENGINE = EngineInfo(
    name="pickle-sqlite",
    label="floor: pickle of the whole state into SQLite",
    open=PickleSqlite,
    environment="ours",
    note="WAL, synchronous=FULL for full and NORMAL for relaxed",
)
