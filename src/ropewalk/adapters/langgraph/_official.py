"""Databases of LangGraph's own savers, read row by row in one consistent snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any, NamedTuple, Protocol

from ropewalk.adapters.langgraph._official_values import Decoder, Reason


class Key(NamedTuple):
    """A checkpoint of a thread, and the one before it."""

    namespace: str
    id: str
    parent_id: str | None


class Checkpointed(NamedTuple):
    """A checkpoint, as the saver that wrote it would show it."""

    key: Key
    checkpoint: dict[str, Any]
    metadata: dict[str, Any]
    size: int
    """How many bytes were read for it."""


class Written(NamedTuple):
    """A pending write."""

    task_id: str
    task_path: str
    idx: int
    channel: str
    value: Any
    size: int


class WriteKey(NamedTuple):
    """Which pending write: the checkpoint that it belongs to, its task and its number."""

    namespace: str
    checkpoint_id: str
    task_id: str
    idx: int


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A row that was not taken over, and why."""

    reason: Reason
    thread_id: str
    namespace: str
    checkpoint_id: str
    what: str
    """Which part of it: the checkpoint, one of its channels, or a pending write."""
    message: str

    def __str__(self) -> str:
        place = f"{self.thread_id!r} {self.checkpoint_id}"
        inside = f" of {self.namespace!r}" if self.namespace else ""
        return f"thread {place}{inside}: {self.what}: {self.message}"


class Counts(NamedTuple):
    """How much there is."""

    threads: int
    checkpoints: int
    writes: int


class Official(Protocol):
    """A database of LangGraph's own savers, at one moment."""

    label: str

    def size(self) -> int:
        """How many bytes its tables take, with their indexes."""

    def threads(self) -> list[str]:
        """The ids of all threads."""

    def counts(self, threads: Iterable[str] | None = None) -> Counts:
        """How many rows there are, of some threads or of all."""

    def keys(self, thread_id: str) -> list[Key]:
        """The checkpoints of a thread, by their ids."""

    def write_keys(self, thread_id: str) -> list[WriteKey]:
        """The pending writes of a thread."""

    def checkpoint(self, thread_id: str, key: Key, decoder: Decoder) -> Checkpointed | LeftOut:
        """A checkpoint; what cannot be read is said, not raised."""

    def writes(
        self, thread_id: str, namespace: str, checkpoint_id: str, decoder: Decoder
    ) -> Iterator[Written | LeftOut]:
        """The pending writes of a checkpoint."""

    def close(self) -> None:
        """Let go of the database."""


def open_official(source: str | PathLike[str], *, schema: str | None = None) -> Official:
    """A database of a `SqliteSaver` (a path) or a `PostgresSaver` (a URL); nothing is changed.

    Raises `NotFound` if it is not there, and `InvalidInput` if no such saver wrote it.
    """
    place = fspath(source)
    if place.startswith(("postgresql://", "postgres://")):
        from ropewalk.adapters.langgraph._official_postgres import PostgresDatabase

        return PostgresDatabase(place, schema)
    from ropewalk.adapters.langgraph._official_sqlite import SqliteDatabase

    return SqliteDatabase(place)


def parents_first(keys: Iterable[Key]) -> list[Key]:
    """Checkpoints so that each stands after the one before it, else by their ids.

    Ids grow with time, so this is their order, unless somebody chose ids of his own.
    """
    listed = sorted(keys, key=lambda key: (key.id, key.namespace))
    places = {(key.namespace, key.id): key for key in listed}
    seen: set[Key] = set()
    ordered: list[Key] = []
    for key in listed:
        line: list[Key] = []
        before: Key | None = key
        while before is not None and before not in seen:  # A circle ends where it began.
            seen.add(before)
            line.append(before)
            before = places.get((before.namespace, before.parent_id or ""))
        ordered += reversed(line)
    return ordered
