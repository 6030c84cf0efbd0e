"""LangGraph's PostgresSaver, on one connection, on a pool, or on a connection for each thread."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bench._model import Place
from bench.engines._saver import Saver

_OPTIONS: dict[str, Any] = {"autocommit": True, "prepare_threshold": 0}
"""As its documentation says."""
_POOL = 20


class Postgres(Saver):
    """A saver and a connection for each that is asked for; a saver works one call at a time."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self._made: Any = import_module("langgraph.checkpoint.postgres").PostgresSaver
        self._url, self._connections = place.url, list[Any]()
        self.checkpointer().setup()

    def checkpointer(self) -> Any:
        import psycopg
        from psycopg.rows import dict_row

        connection: Any = psycopg.Connection.connect(self._url, row_factory=dict_row, **_OPTIONS)
        self._connections.append(connection)
        return self._made(connection)

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


class PostgresPool(Saver):
    """One saver on a pool, for all threads."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        from psycopg_pool import ConnectionPool

        made: Any = import_module("langgraph.checkpoint.postgres").PostgresSaver
        self._pool = ConnectionPool(place.url, max_size=_POOL, kwargs=_OPTIONS, open=True)
        self._saver = made(self._pool)
        self._saver.setup()

    def checkpointer(self) -> Any:
        return self._saver

    def close(self) -> None:
        self._pool.close()
