"""LangGraph's checkpointers, and ours."""

from __future__ import annotations

import sqlite3
from importlib import import_module
from typing import Any

from bench._model import Engine, EngineInfo, Place, our_engine, ours


class Saver(Engine):
    """What keeps the checkpoints of graphs. This one keeps none."""

    delta = False
    """Whether the graphs keep what grows in a DeltaChannel."""
    lasting = True
    """Whether another process can read what was kept."""

    def checkpointer(self) -> Any:
        """What a graph is compiled with. Threads that run at once ask for one each."""
        return None

    def commit(self, value: Any) -> None:
        """Keep a value as the state of a graph of one step."""
        from bench._graphs import THREAD

        self._graph().invoke({"value": value}, THREAD, durability="sync")

    def read(self) -> Any:
        """The newest value."""
        from bench._graphs import THREAD

        return self._graph().get_state(THREAD).values["value"]

    def _graph(self) -> Any:
        from langgraph.graph import END, START, StateGraph

        builder: Any = StateGraph(dict)
        builder.add_node("keep", lambda state: state)
        builder.add_edge(START, "keep")
        builder.add_edge("keep", END)
        return builder.compile(checkpointer=self.checkpointer())


def saver(engine: Engine) -> Saver:
    """The engine, which must be a checkpointer."""
    assert isinstance(engine, Saver), f"{type(engine).__name__} is no checkpointer"
    return engine


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


class InMemory(Saver):
    """One saver; its bytes are those of the values, the checkpoints and the writes."""

    lasting = False

    def __init__(self, place: Place) -> None:
        super().__init__()
        self._saver: Any = import_module("langgraph.checkpoint.memory").InMemorySaver()

    def checkpointer(self) -> Any:
        return self._saver

    def stored_bytes(self) -> int:
        blobs = sum(len(data) for _, data in self._saver.blobs.values())
        rows = [
            row
            for spaces in self._saver.storage.values()
            for checkpoints in spaces.values()
            for row in checkpoints.values()
        ]
        writes = [one[2][1] for kept in self._saver.writes.values() for one in kept.values()]
        return blobs + sum(len(row[0][1]) + len(row[1][1]) for row in rows) + sum(map(len, writes))


def _open_saver_none(place: Place) -> Saver:
    return Saver()


class Null(Saver):
    """It says of every checkpoint that it was stored, and finds none."""

    lasting = False

    def checkpointer(self) -> Any:
        from langgraph.checkpoint.base import BaseCheckpointSaver

        class _Saver(BaseCheckpointSaver[str]):  # type: ignore[misc]
            def get_tuple(self, config: Any) -> None:
                return None

            def put(self, config: Any, checkpoint: Any, metadata: Any, versions: Any) -> Any:
                told = {**config["configurable"], "checkpoint_id": checkpoint["id"]}
                return {"configurable": told}

            def put_writes(self, config: Any, writes: Any, task: str, path: str = "") -> None:
                pass

        return _Saver()


def _open_saver_null(place: Place) -> Saver:
    return Null()


ENGINES = (
    EngineInfo(
        name="saver-memory",
        label="InMemorySaver",
        open=InMemory,
        environment="peers",
        package="langgraph-checkpoint",
        imports="langgraph.checkpoint.memory",
        note="stored are the bytes of its values, checkpoints and writes, without keys",
    ),
    EngineInfo(
        name="saver-none",
        label="no checkpointer",
        open=_open_saver_none,
        environment="peers",
        package="langgraph",
        imports="langgraph.graph",
        note="the graph itself, which keeps nothing",
    ),
    EngineInfo(
        name="saver-null",
        label="a saver that stores nothing",
        open=_open_saver_null,
        environment="peers",
        package="langgraph",
        imports="langgraph.graph",
        note="LangGraph's own share of what a checkpointer adds",
    ),
    EngineInfo(
        name="saver-sqlite",
        label="SqliteSaver",
        open=Sqlite,
        environment="peers",
        package="langgraph-checkpoint-sqlite",
        imports="langgraph.checkpoint.sqlite",
        note="it sets WAL and leaves synchronous as SQLite was built; here it is set to FULL, as "
        "Ropewalk has it, so that an acknowledged checkpoint survives a power loss",
    ),
    EngineInfo(
        name="saver-sqlite-delta",
        label="SqliteSaver with DeltaChannel",
        open=SqliteDelta,
        environment="peers",
        package="langgraph-checkpoint-sqlite",
        imports="langgraph.checkpoint.sqlite",
        note="another state: its growing channel is a DeltaChannel, a beta, with its own "
        "reducer for messages and a snapshot at every 100th update",
    ),
    EngineInfo(
        name="saver-postgres",
        label="PostgresSaver",
        open=Postgres,
        environment="peers",
        package="langgraph-checkpoint-postgres",
        imports="langgraph.checkpoint.postgres",
        note="fsync and synchronous_commit on; where threads run at once, a saver and a connection "
        "for each",
        server="postgres",
    ),
    EngineInfo(
        name="saver-postgres-pool",
        label="PostgresSaver on a pool",
        open=PostgresPool,
        environment="peers",
        package="langgraph-checkpoint-postgres",
        imports="langgraph.checkpoint.postgres",
        note="one saver for all threads on a pool of 20 connections, as its documentation says",
        server="postgres",
    ),
    our_engine(
        name="saver-ropewalk",
        label="RopewalkSaver",
        open=lambda place: ours("langgraph").RopewalkSide(place),
        environment="peers",
        imports="ropewalk.adapters.langgraph",
        note="on its embedded store, durable",
    ),
    our_engine(
        name="saver-ropewalk-delta",
        label="RopewalkSaver with DeltaChannel",
        open=lambda place: ours("langgraph").RopewalkDelta(place),
        environment="peers",
        imports="ropewalk.adapters.langgraph",
        note="the same, for the state with a DeltaChannel",
    ),
    our_engine(
        name="saver-ropewalk-postgres",
        label="RopewalkSaver, Postgres",
        open=lambda place: ours("langgraph").RopewalkSide(place),
        environment="peers",
        imports="ropewalk.adapters.langgraph",
        note="one saver for all threads",
        server="postgres",
    ),
)
