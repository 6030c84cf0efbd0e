"""The databases of LangGraph's own savers as targets."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

from langgraph.checkpoint.serde.jsonplus import _msgpack_enc
from ormsgpack import Ext

from ropewalk.adapters.langgraph.classes import GraphTypes
from ropewalk.adapters.langgraph.deferred import Call, class_name, is_deferred
from ropewalk.adapters.langgraph.saver.checkpoints import Address
from ropewalk.codec import Codec
from ropewalk.codec.decoder import Decoder, no_links
from ropewalk.codec.msgpack import Code
from ropewalk.errors import InvalidInput, NotStorable

_EXTRA = "+"


class OfficialForms(Codec):
    """Reads what a saver stored, to be written again by LangGraph's own."""

    def __init__(self, types: GraphTypes) -> None:
        super().__init__(types.registry, classes=types.registry.classes, undeclared="show")

    def decoder(self, link: Callable[[bytes], Any] = no_links) -> Decoder:
        """The decoder for this codec."""
        return _FormsDecoder(self, link)


class _FormsDecoder(Decoder):
    def _stranger(self, code: Code, head: list[Any], content: Any) -> Any:
        return _form(code, head[0], content)


def _form(code: Code, name: str, content: Any) -> Ext:
    module, _, cls = class_name(name).rpartition(".")
    if is_deferred(name) and isinstance(content, list) and len(content) in (2, 3):
        call, argument, *method = content
        return Ext(call, _msgpack_enc([module, cls, argument, *method]))
    if code != Code.RECORD or not module:
        raise NotStorable(
            f"a value of class {name!r:.120} can be given back only by a program that declares it"
        )
    fields = {
        one.removeprefix(_EXTRA): value for one, value in content.items() if not one.startswith("_")
    }
    return Ext(int(Call.NAMES), _msgpack_enc([module, cls, fields]))


class Target(ABC):
    """A database written through one of LangGraph's own savers."""

    _insert_write: str
    """Inserts a row of pending writes."""

    def __init__(self, connection: Any, saver: Any) -> None:
        self._connection, self._saver = connection, saver
        saver.setup()

    @abstractmethod
    def checkpoints(self, thread_id: str) -> set[Address]:
        """The existing checkpoints of a thread."""

    @abstractmethod
    def writes(self, thread_id: str, address: Address) -> set[tuple[str, int]]:
        """The tasks and indexes of the existing pending writes of a checkpoint."""

    def put(
        self,
        thread_id: str,
        address: Address,
        parent: str | None,
        checkpoint: dict[str, Any],
        metadata: dict[str, Any],
        changed: dict[str, Any],
    ) -> None:
        """Write a checkpoint, with the channels that changed since its parent."""
        where: dict[str, Any] = {"thread_id": thread_id, "checkpoint_ns": address.namespace}
        if parent is not None:
            where["checkpoint_id"] = parent
        try:
            self._begin()
            self._saver.put({"configurable": where}, checkpoint, metadata, changed)
        except TypeError as error:  # ormsgpack's own errors are TypeErrors.
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
        """Write a pending write with its own index, which `put_writes` would reassign."""
        try:
            kind, data = self._saver.serde.dumps_typed(value)
        except TypeError as error:
            raise NotStorable(f"LangGraph's serializer does not take it: {error}") from error
        self._begin()
        row = (thread_id, *address, task_id, task_path, idx, channel, kind, data)
        self._connection.execute(self._insert_write, row)

    def commit(self) -> None:
        """Commit the transaction."""
        self._connection.commit()

    def _begin(self) -> None:
        """Begin a transaction unless one is open; SQLite's driver does that by itself."""
        return

    @abstractmethod
    def size(self) -> int:
        """Its size in bytes."""

    def close(self) -> None:
        """Close it; uncommitted rows are dropped."""
        self._connection.close()


def open_target(target: str, schema: str | None) -> Target:
    """Open a database for writing; its tables are created if needed."""
    if target.startswith(("postgresql://", "postgres://")):
        return PostgresTarget(target, schema)
    if schema is not None:
        raise InvalidInput("a schema is for Postgres: a SqliteSaver has a file of its own")
    return SqliteTarget(target)


class _Together(sqlite3.Connection):
    """A connection wrapper that turns a saver's commit per row into one transaction."""

    def commit(self) -> None:
        """Does nothing."""

    def finish(self) -> None:
        """Commit."""
        super().commit()


class SqliteTarget(Target):
    """The file of a `SqliteSaver`."""

    _insert_write = (
        "INSERT OR REPLACE INTO writes (thread_id, checkpoint_ns, checkpoint_id, task_id, "
        "task_path, idx, channel, type, value) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
    )

    def __init__(self, path: str) -> None:
        try:
            from langgraph.checkpoint.sqlite import SqliteSaver
        except ModuleNotFoundError as error:
            raise ImportError(
                "a database of SqliteSaver needs it: pip install langgraph-checkpoint-sqlite"
            ) from error
        self._path = Path(path)
        connection = sqlite3.connect(path, factory=_Together)
        try:
            super().__init__(connection, SqliteSaver(connection))
        except sqlite3.DatabaseError as error:
            connection.close()
            raise InvalidInput(
                f"{path} cannot be written as a SqliteSaver does: {error}"
            ) from error

    def checkpoints(self, thread_id: str) -> set[Address]:
        """The existing checkpoints of a thread."""
        rows = self._connection.execute(
            "SELECT checkpoint_ns, checkpoint_id FROM checkpoints WHERE thread_id = ?", (thread_id,)
        )
        return {Address(*row) for row in rows}

    def writes(self, thread_id: str, address: Address) -> set[tuple[str, int]]:
        """The tasks and indexes of the existing pending writes of a checkpoint."""
        rows = self._connection.execute(
            "SELECT task_id, idx FROM writes "
            "WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?",
            (thread_id, *address),
        )
        return set(rows)

    def commit(self) -> None:
        """Commit the transaction."""
        self._connection.finish()

    def size(self) -> int:
        """The size of the file in bytes."""
        self.commit()
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return self._path.stat().st_size


class PostgresTarget(Target):
    """The tables of a `PostgresSaver` in a schema."""

    def __init__(self, url: str, schema: str | None) -> None:
        try:
            from langgraph.checkpoint.postgres import PostgresSaver
            from psycopg import sql
            from psycopg.rows import dict_row

            from ropewalk.adapters.langgraph.transfer.postgres import connected
        except ModuleNotFoundError as error:
            raise ImportError(
                "a database of PostgresSaver needs it: pip install langgraph-checkpoint-postgres"
            ) from error
        self._insert_write = PostgresSaver.UPSERT_CHECKPOINT_WRITES_SQL
        connection, _ = connected(url, autocommit=True, row_factory=dict_row)
        try:
            if schema is not None:
                name = sql.Identifier(schema)
                connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(name))
                connection.execute(sql.SQL("SET search_path TO {}").format(name))
            super().__init__(connection, PostgresSaver(connection))
        except BaseException:
            connection.close()
            raise

    def checkpoints(self, thread_id: str) -> set[Address]:
        """The existing checkpoints of a thread."""
        rows = self._connection.execute(
            "SELECT checkpoint_ns, checkpoint_id FROM checkpoints WHERE thread_id = %s",
            (thread_id,),
        )
        return {Address(row["checkpoint_ns"], row["checkpoint_id"]) for row in rows}

    def writes(self, thread_id: str, address: Address) -> set[tuple[str, int]]:
        """The tasks and indexes of the existing pending writes of a checkpoint."""
        rows = self._connection.execute(
            "SELECT task_id, idx FROM checkpoint_writes "
            "WHERE thread_id = %s AND checkpoint_ns = %s AND checkpoint_id = %s",
            (thread_id, *address),
        )
        return {(row["task_id"], row["idx"]) for row in rows}

    def _begin(self) -> None:
        if self._connection.info.transaction_status.name == "IDLE":
            self._connection.execute("BEGIN")

    def size(self) -> int:
        """The size of the tables in bytes."""
        total = 0
        for table in ("checkpoints", "checkpoint_blobs", "checkpoint_writes"):
            row = self._connection.execute(
                "SELECT pg_total_relation_size(%s::regclass) AS size", (table,)
            ).fetchone()
            total += row["size"] if row else 0
        return total
