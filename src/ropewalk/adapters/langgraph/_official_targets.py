"""Databases of LangGraph's own savers, written with their own serializer and their own tables."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any, Protocol

from langgraph.checkpoint.base import get_checkpoint_metadata
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from ropewalk.adapters.langgraph.checkpoints import Address
from ropewalk.errors import InvalidInput, NotStorable

_CHECKPOINTS = "SELECT checkpoint_ns, checkpoint_id FROM checkpoints WHERE thread_id = "


class Target(Protocol):
    """Where checkpoints are written to."""

    def checkpoints(self, thread_id: str) -> set[Address]:
        """The checkpoints of a thread that are there."""

    def writes(self, thread_id: str, address: Address) -> set[tuple[str, int]]:
        """The tasks and numbers of the pending writes that a checkpoint has there."""

    def put(
        self,
        thread_id: str,
        address: Address,
        parent: str | None,
        checkpoint: dict[str, Any],
        metadata: dict[str, Any],
        changed: dict[str, Any],
    ) -> None:
        """Write a checkpoint, of which some channels changed since its parent."""

    def write(
        self,
        thread_id: str,
        address: Address,
        task_id: str,
        task_path: str,
        idx: int,
        channel: str,
        value: Any,
    ) -> None:
        """Write a pending write."""

    def commit(self) -> None:
        """Make what was written last."""

    def size(self) -> int:
        """How many bytes it takes."""

    def close(self) -> None:
        """Let go of it; what was not committed is dropped."""


def open_target(target: str, schema: str | None) -> Target:
    """A database to write to; its tables are made if need be."""
    if target.startswith(("postgresql://", "postgres://")):
        return _postgres_target(target, schema)
    if schema is not None:
        raise InvalidInput("a schema is for Postgres: a SqliteSaver has a file of its own")
    return SqliteTarget(target)


class SqliteTarget:
    """The file of a `SqliteSaver`."""

    def __init__(self, path: str) -> None:
        try:
            from langgraph.checkpoint.sqlite import SqliteSaver
        except ModuleNotFoundError as error:
            raise ImportError(
                "a database of SqliteSaver needs it: pip install langgraph-checkpoint-sqlite"
            ) from error
        self._path = Path(path)
        self._connection = sqlite3.connect(path)
        try:
            SqliteSaver(self._connection).setup()
        except sqlite3.DatabaseError as error:
            self._connection.close()
            raise InvalidInput(
                f"{path} cannot be written as a SqliteSaver does: {error}"
            ) from error
        self._serializer = JsonPlusSerializer()

    def checkpoints(self, thread_id: str) -> set[Address]:
        """The checkpoints of a thread that are there."""
        return {Address(*row) for row in self._connection.execute(_CHECKPOINTS + "?", (thread_id,))}

    def writes(self, thread_id: str, address: Address) -> set[tuple[str, int]]:
        """The tasks and numbers of the pending writes that a checkpoint has there."""
        rows = self._connection.execute(
            "SELECT task_id, idx FROM writes "
            "WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?",
            (thread_id, *address),
        )
        return set(rows)

    def put(
        self,
        thread_id: str,
        address: Address,
        parent: str | None,
        checkpoint: dict[str, Any],
        metadata: dict[str, Any],
        changed: dict[str, Any],
    ) -> None:
        """Write a checkpoint."""
        kind, data = _dumped(self._serializer, checkpoint)
        about: Any = get_checkpoint_metadata({}, metadata)
        told = json.dumps(about, ensure_ascii=False).encode("utf-8", "ignore")
        self._connection.execute(
            "INSERT OR REPLACE INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, "
            "parent_checkpoint_id, type, checkpoint, metadata) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (thread_id, *address, parent, kind, data, told),
        )

    def write(
        self,
        thread_id: str,
        address: Address,
        task_id: str,
        task_path: str,
        idx: int,
        channel: str,
        value: Any,
    ) -> None:
        """Write a pending write."""
        kind, data = _dumped(self._serializer, value)
        self._connection.execute(
            "INSERT OR REPLACE INTO writes (thread_id, checkpoint_ns, checkpoint_id, task_id, "
            "task_path, idx, channel, type, value) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (thread_id, *address, task_id, task_path, idx, channel, kind, data),
        )

    def commit(self) -> None:
        """Make what was written last."""
        self._connection.commit()

    def size(self) -> int:
        """How many bytes the file takes."""
        self._connection.commit()
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return self._path.stat().st_size

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()


def _postgres_target(url: str, schema: str | None) -> Target:
    try:
        from ropewalk.adapters.langgraph._official_postgres_target import PostgresTarget
    except ModuleNotFoundError as error:
        raise ImportError(
            "a database of PostgresSaver needs it: pip install langgraph-checkpoint-postgres"
        ) from error
    return PostgresTarget(url, schema)


def _dumped(serializer: JsonPlusSerializer, value: Any) -> tuple[str, bytes]:
    try:
        kind, data = serializer.dumps_typed(value)
        return kind, data
    except TypeError as error:  # ormsgpack's own errors are such.
        raise NotStorable(f"LangGraph's serializer does not take it: {error}") from error
