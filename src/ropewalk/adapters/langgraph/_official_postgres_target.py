"""The database of a `PostgresSaver`, written by that saver."""

from __future__ import annotations

from typing import Any

from langgraph.checkpoint.postgres import PostgresSaver
from psycopg import sql
from psycopg.rows import dict_row

from ropewalk.adapters.langgraph._official_postgres import connected
from ropewalk.adapters.langgraph.checkpoints import Address
from ropewalk.errors import NotStorable


class PostgresTarget:
    """The tables of a `PostgresSaver` in a schema."""

    def __init__(self, url: str, schema: str | None) -> None:
        self._connection, _ = connected(url, autocommit=True, row_factory=dict_row)
        try:
            if schema is not None:
                name = sql.Identifier(schema)
                self._connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(name))
                self._connection.execute(sql.SQL("SET search_path TO {}").format(name))
            self._saver = PostgresSaver(self._connection)
            self._saver.setup()
        except BaseException:
            self._connection.close()
            raise

    def checkpoints(self, thread_id: str) -> set[Address]:
        """The checkpoints of a thread that are there."""
        rows = self._connection.execute(
            "SELECT checkpoint_ns, checkpoint_id FROM checkpoints WHERE thread_id = %s",
            (thread_id,),
        )
        return {Address(row["checkpoint_ns"], row["checkpoint_id"]) for row in rows}

    def writes(self, thread_id: str, address: Address) -> set[tuple[str, int]]:
        """The tasks and numbers of the pending writes that a checkpoint has there."""
        rows = self._connection.execute(
            "SELECT task_id, idx FROM checkpoint_writes "
            "WHERE thread_id = %s AND checkpoint_ns = %s AND checkpoint_id = %s",
            (thread_id, *address),
        )
        return {(row["task_id"], row["idx"]) for row in rows}

    def put(
        self,
        thread_id: str,
        address: Address,
        parent: str | None,
        checkpoint: dict[str, Any],
        metadata: dict[str, Any],
        changed: dict[str, Any],
    ) -> None:
        """Write a checkpoint, and those of its channels that changed."""
        where: dict[str, Any] = {"thread_id": thread_id, "checkpoint_ns": address.namespace}
        if parent is not None:
            where["checkpoint_id"] = parent
        self._begin()
        try:
            self._saver.put({"configurable": where}, checkpoint, metadata, changed)
        except TypeError as error:
            raise NotStorable(f"LangGraph's serializer does not take it: {error}") from error

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
        try:
            kind, data = self._saver.serde.dumps_typed(value)
        except TypeError as error:
            raise NotStorable(f"LangGraph's serializer does not take it: {error}") from error
        self._begin()
        self._connection.execute(
            self._saver.UPSERT_CHECKPOINT_WRITES_SQL,
            (thread_id, *address, task_id, task_path, idx, channel, kind, data),
        )

    def _begin(self) -> None:
        if self._connection.info.transaction_status.name == "IDLE":
            self._connection.execute("BEGIN")

    def commit(self) -> None:
        """Make what was written last."""
        self._connection.commit()

    def size(self) -> int:
        """How many bytes the tables take."""
        total = 0
        for table in ("checkpoints", "checkpoint_blobs", "checkpoint_writes"):
            row = self._connection.execute(
                "SELECT pg_total_relation_size(%s::regclass) AS size", (table,)
            ).fetchone()
            total += row["size"] if row else 0
        return total

    def close(self) -> None:
        """Let go of the database."""
        self._connection.close()
