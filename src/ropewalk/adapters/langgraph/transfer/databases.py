"""The databases of LangGraph's own savers as sources, and that of SqliteSaver."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ropewalk.adapters.langgraph.transfer.values import (
    Reason,
    Unreadable,
    ValueDecoder,
    check_names,
)
from ropewalk.errors import Corrupt, InvalidInput, NotFound, Unavailable

_CHECKPOINT = "thread_id checkpoint_ns checkpoint_id parent_checkpoint_id type checkpoint metadata"
_WRITE = "thread_id checkpoint_ns checkpoint_id task_id idx channel type value"
_OF_ONE = "thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"


class Key(NamedTuple):
    """A checkpoint of a thread, and its parent."""

    namespace: str
    id: str
    parent_id: str | None


class Checkpointed(NamedTuple):
    """A checkpoint, as the saver that wrote it would return it."""

    key: Key
    checkpoint: dict[str, Any]
    metadata: dict[str, Any]
    size: int
    """How many bytes were read for it."""


class PendingWrite(NamedTuple):
    """A pending write."""

    task_id: str
    task_path: str
    idx: int
    channel: str
    value: Any
    size: int


class WriteKey(NamedTuple):
    """The identity of a pending write: its checkpoint, its task and its index."""

    namespace: str
    checkpoint_id: str
    task_id: str
    idx: int


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A row that was not imported, and why."""

    reason: Reason
    thread_id: str
    namespace: str
    checkpoint_id: str
    what: str
    """The affected part: the checkpoint, one of its channels, or a pending write."""
    message: str

    def __str__(self) -> str:
        place = f"{self.thread_id!r} {self.checkpoint_id}"
        inside = f" of {self.namespace!r}" if self.namespace else ""
        return f"thread {place}{inside}: {self.what}: {self.message}"


class Counts(NamedTuple):
    """Numbers of rows."""

    threads: int
    checkpoints: int
    writes: int


class Official(Protocol):
    """A database of LangGraph's own savers, as one snapshot."""

    label: str

    def size(self) -> int:
        """The bytes of its tables, with their indexes."""

    def threads(self) -> list[str]:
        """The ids of all threads."""

    def counts(self, threads: Iterable[str] | None = None) -> Counts:
        """The number of rows, of some threads or of all."""

    def keys(self, thread_id: str) -> list[Key]:
        """The checkpoints of a thread, by id."""

    def write_keys(self, thread_id: str) -> list[WriteKey]:
        """The pending writes of a thread."""

    def checkpoint(self, thread_id: str, key: Key, decoder: ValueDecoder) -> Checkpointed | LeftOut:
        """A checkpoint; unreadable parts are reported, not raised."""

    def writes(
        self, thread_id: str, namespace: str, checkpoint_id: str, decoder: ValueDecoder
    ) -> Iterator[PendingWrite | LeftOut]:
        """The pending writes of a checkpoint."""

    def close(self) -> None:
        """Close the database."""


def open_official(source: str | PathLike[str], *, schema: str | None = None) -> Official:
    """Open a database of a `SqliteSaver` (a path) or a `PostgresSaver` (a URL), read-only.

    Raises `NotFound` if it does not exist, and `InvalidInput` if no such saver wrote it.
    """
    place = fspath(source)
    if place.startswith(("postgresql://", "postgres://")):
        from ropewalk.adapters.langgraph.transfer.postgres import PostgresDatabase

        return PostgresDatabase(place, schema)
    return SqliteDatabase(place)


def parents_first(keys: Iterable[Key]) -> list[Key]:
    """Checkpoints in topological order, else by id.

    Ids grow with time, so this is usually their order anyway, unless a program chose its own ids.
    """
    listed = sorted(keys, key=lambda key: (key.id, key.namespace))
    places = {(key.namespace, key.id): key for key in listed}
    seen: set[Key] = set()
    ordered: list[Key] = []
    for key in listed:
        line: list[Key] = []
        before: Key | None = key
        while before is not None and before not in seen:  # Break a cycle where it began.
            seen.add(before)
            line.append(before)
            before = places.get((before.namespace, before.parent_id or ""))
        ordered += reversed(line)
    return ordered


class SqliteDatabase:
    """One file, in one read transaction: concurrent writes are not seen."""

    label = "SQLite"

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        if not self._path.is_file():
            raise NotFound(f"{path}: there is no such file: name the file of a SqliteSaver")
        self._connection = _connected(self._path)
        try:
            self._connection.execute("BEGIN")
            self._columns = self._look()
        except BaseException as error:
            self.close()
            if isinstance(error, sqlite3.Error):
                raise _translated(self._path, error) from error
            raise

    def _look(self) -> dict[str, set[str]]:
        found = {
            table: {row[1] for row in self._connection.execute(f"PRAGMA table_info({table})")}
            for table in ("checkpoints", "writes")
        }
        if "thread_ts" in found["checkpoints"]:
            raise InvalidInput(
                f"{self._path}: its tables are older than langgraph-checkpoint-sqlite 1.0 "
                "(a column thread_ts), and are not read"
            )
        missing = set(_CHECKPOINT.split()) - found["checkpoints"]
        missing |= set(_WRITE.split()) - found["writes"] if found["writes"] else set()
        if missing:
            raise InvalidInput(
                f"{self._path}: no SqliteSaver wrote this database: it has no table checkpoints "
                f"with {', '.join(sorted(missing))}"
            )
        return found

    def size(self) -> int:
        """The bytes of the file and its write-ahead log."""
        files = (self._path, self._path.with_name(self._path.name + "-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def threads(self) -> list[str]:
        """The ids of all threads."""
        found = {str(row[0]) for row in self._ask("SELECT DISTINCT thread_id FROM checkpoints")}
        if self._columns["writes"]:
            found |= {str(row[0]) for row in self._ask("SELECT DISTINCT thread_id FROM writes")}
        return sorted(found)

    def counts(self, threads: Iterable[str] | None = None) -> Counts:
        """The number of rows, of some threads or of all."""
        chosen = self.threads() if threads is None else list(threads)
        return Counts(
            len(chosen),
            self._count("checkpoints", None if threads is None else chosen),
            self._count("writes", None if threads is None else chosen),
        )

    def _count(self, table: str, threads: list[str] | None) -> int:
        if not self._columns[table]:
            return 0
        asked = f"SELECT count(*) FROM {table}"
        if threads is None:
            return int(next(self._ask(asked))[0])
        asked += " WHERE thread_id = ?"
        return sum(int(next(self._ask(asked, one))[0]) for one in threads)

    def keys(self, thread_id: str) -> list[Key]:
        """The checkpoints of a thread, by id."""
        asked = (
            "SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id FROM checkpoints "
            "WHERE thread_id = ? ORDER BY checkpoint_id, checkpoint_ns"
        )
        return [
            Key(str(space), str(id), None if parent is None else str(parent))
            for space, id, parent in self._ask(asked, thread_id)
        ]

    def write_keys(self, thread_id: str) -> list[WriteKey]:
        """The pending writes of a thread."""
        if not self._columns["writes"]:
            return []
        asked = (
            "SELECT checkpoint_ns, checkpoint_id, task_id, idx FROM writes WHERE thread_id = ? "
            "ORDER BY checkpoint_id, checkpoint_ns, task_id, idx"
        )
        return [
            WriteKey(str(space), str(id), str(task), int(idx))
            for space, id, task, idx in self._ask(asked, thread_id)
        ]

    def checkpoint(self, thread_id: str, key: Key, decoder: ValueDecoder) -> Checkpointed | LeftOut:
        """A checkpoint; unreadable parts are reported, not raised."""
        asked = f"SELECT type, checkpoint, metadata FROM checkpoints WHERE {_OF_ONE}"
        found = next(self._ask(asked, thread_id, key.namespace, key.id), None)
        kind, data, about = found or (None, None, None)
        try:
            checkpoint = decoder.decode(kind, _bytes(data))
            metadata = _metadata(about)
            check_checkpoint(checkpoint, key)
        except Unreadable as error:
            return LeftOut(
                error.reason, thread_id, key.namespace, key.id, "the checkpoint", str(error)
            )
        size = len(_bytes(data) or b"") + len(about or b"")
        return Checkpointed(key, checkpoint, metadata, size)

    def writes(
        self, thread_id: str, namespace: str, checkpoint_id: str, decoder: ValueDecoder
    ) -> Iterator[PendingWrite | LeftOut]:
        """The pending writes of a checkpoint."""
        if not self._columns["writes"]:
            return
        path = "task_path" if "task_path" in self._columns["writes"] else "''"
        asked = (
            f"SELECT task_id, {path}, idx, channel, type, value FROM writes WHERE {_OF_ONE} "
            "ORDER BY 2, 1, 3"
        )
        for task, task_path, idx, channel, kind, data in self._ask(
            asked, thread_id, namespace, checkpoint_id
        ):
            try:
                check_names(task, task_path, channel)
                value = decoder.decode(kind, _bytes(data))
            except Unreadable as error:
                what = f"the write {idx} of task {task} to {channel!r}"
                yield LeftOut(error.reason, thread_id, namespace, checkpoint_id, what, str(error))
            else:
                yield PendingWrite(task, task_path, int(idx), channel, value, len(data or b""))

    def _ask(self, statement: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        try:
            yield from self._connection.execute(statement, values)
        except sqlite3.Error as error:
            raise _translated(self._path, error) from error

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def check_checkpoint(checkpoint: Any, key: Key) -> None:
    """Raise `Unreadable` for a checkpoint without the required fields."""
    if not isinstance(checkpoint, dict) or not all(isinstance(name, str) for name in checkpoint):
        raise Unreadable("damaged", "it is no checkpoint")
    for name in ("channel_values", "channel_versions", "versions_seen"):
        if not isinstance(checkpoint.get(name), dict):
            raise Unreadable("damaged", f"it is a checkpoint without {name}")
    if checkpoint.get("id") != key.id:
        raise Unreadable("damaged", "the id inside it is another one")


def _metadata(about: Any) -> dict[str, Any]:
    if about is None:
        return {}
    try:
        found = json.loads(about)
    except (ValueError, TypeError, RecursionError) as error:
        raise Unreadable("damaged", f"its metadata are no JSON: {error}") from error
    if not isinstance(found, dict):
        raise Unreadable("damaged", "its metadata are no object of JSON")
    return found


def _bytes(data: Any) -> bytes | None:
    """A value of SQLite, which allows any type in any column."""
    if data is None or isinstance(data, bytes):
        return data
    return str(data).encode("utf-8", "surrogateescape")


def _connected(path: Path) -> sqlite3.Connection:
    """A read-only connection, even where the folder is not writable."""
    address = path.absolute().as_uri()
    connection = sqlite3.connect(f"{address}?mode=ro", uri=True, isolation_level=None)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        connection.close()
        if "unable to open" not in str(error) and "readonly" not in str(error):
            raise _translated(path, error) from error
        waiting = path.with_name(path.name + "-wal")
        if waiting.exists() and waiting.stat().st_size:
            raise _translated(path, error) from error
        connection = sqlite3.connect(
            f"{address}?mode=ro&immutable=1", uri=True, isolation_level=None
        )
    except sqlite3.DatabaseError as error:
        connection.close()
        raise _translated(path, error) from error
    with suppress(sqlite3.Error):
        connection.execute("PRAGMA busy_timeout = 10000")
    # A text that is not UTF-8 must not prevent reading the others.
    connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
    return connection


def _translated(path: Path, error: sqlite3.Error) -> Exception:
    told = str(error)
    if "not a database" in told:
        return InvalidInput(f"{path}: this is no SQLite database: name the file of a SqliteSaver")
    if "malformed" in told or "corrupt" in told:
        return Corrupt(f"{path}: SQLite says that the file is damaged: {told}")
    return Unavailable(f"{path}: {told}")
