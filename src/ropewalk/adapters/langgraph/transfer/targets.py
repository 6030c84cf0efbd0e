"""Where checkpoints are given back to: databases as LangGraph's own savers write them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from langgraph.checkpoint.base import get_checkpoint_metadata
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer, _msgpack_enc
from ormsgpack import Ext

from ropewalk.adapters.langgraph.classes import GraphTypes
from ropewalk.adapters.langgraph.deferred import Call, class_name, is_deferred
from ropewalk.adapters.langgraph.saver.checkpoints import Address
from ropewalk.codec import Codec
from ropewalk.codec.decoder import Decoder, no_links
from ropewalk.codec.msgpack import Code
from ropewalk.errors import InvalidInput, NotStorable

_EXTRA = "+"

_CHECKPOINTS = "SELECT checkpoint_ns, checkpoint_id FROM checkpoints WHERE thread_id = "


class OfficialForms(Codec):
    """Reads what a saver stored, to be written again by LangGraph's own."""

    def __init__(self, types: GraphTypes) -> None:
        super().__init__(types.registry, classes=types.registry.classes, undeclared="show")

    def decoder(self, link: Callable[[bytes], Any] = no_links) -> Decoder:
        """What decodes for this codec."""
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
        from ropewalk.adapters.langgraph.transfer.postgres import PostgresTarget
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
