"""The floor of Postgres: one INSERT of what changed, which is its own transaction."""

from __future__ import annotations

from typing import Any

from bench._model import EngineInfo, Place
from bench.engines._client import Floor

_TABLE = "CREATE TABLE IF NOT EXISTS floor (number bigserial PRIMARY KEY, client text, data bytea)"


class FloorPostgres(Floor):
    """A connection for each client. The statement is prepared."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        import psycopg

        self._url, self._name = place.url, place.branch
        self._folder = place.folder
        self._connection: Any = psycopg.connect(place.url, autocommit=True)
        self._others: list[FloorPostgres] = []
        self._connection.execute("SET client_min_messages = warning")
        self._connection.execute(_TABLE)
        self._cursor: Any = self._connection.cursor()

    def _send(self, data: bytes) -> None:
        asked = "INSERT INTO floor (client, data) VALUES (%s, %b)"
        self._cursor.execute(asked, (self._name, data), prepare=True)

    def _sent(self) -> list[bytes]:
        asked = "SELECT data FROM floor WHERE client = %s ORDER BY number"
        return [bytes(row[0]) for row in self._connection.execute(asked, (self._name,))]

    def another(self, name: str) -> FloorPostgres:
        self._others.append(FloorPostgres(Place(self._folder, branch=name, url=self._url)))
        return self._others[-1]

    def close(self) -> None:
        for other in self._others:
            other.close()
        self._connection.close()


ENGINE = EngineInfo(
    name="floor-postgres",
    label="floor: one INSERT, Postgres",
    open=FloorPostgres,
    environment="ours",
    note="it is told what changed; a prepared statement in autocommit, synchronous_commit on, "
    "a connection for each client",
    server="postgres",
)
