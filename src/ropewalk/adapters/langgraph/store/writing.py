"""Batches of writes: their effect on the newest map, and group commit.

While one thread commits, others queue. The next one takes all that wait, so that a commit costs
them one round trip and one path of nodes. Each batch is still atomic, and fails alone. Two batches
with the same key never share a commit: each version has a commit of its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakSet

from ropewalk.adapters.langgraph.store.items import (
    GONE,
    ITEM,
    NAMESPACE,
    VECTORS,
    Counted,
    Name,
    Record,
    Stored,
    Tombstone,
    to_key,
)
from ropewalk.adapters.langgraph.store.snapshot import ending
from ropewalk.codec import Codec, format_path
from ropewalk.errors import NotStorable, Unavailable, VersionConflict
from ropewalk.tree import ABSENT, Edited, ObjectId, Reader
from ropewalk.tree.map import CachedMap, CacheEntry, Draft, MapWriter
from ropewalk.tree.read import Loader

_MOST: Final = 64
_MOST_ITEMS: Final = 2000
_groups: WeakSet[Group] = WeakSet()


class Unchanged(Exception):
    """There is nothing to do."""


@dataclass(slots=True, frozen=True)
class Put:
    """A value to store under a name; None deletes."""

    name: Name
    value: dict[str, Any] | None
    ttl: float | None = None
    vectors: Mapping[str, bytes] = field(default_factory=dict)
    """By the paths of the texts they embed."""
    if_version: int | None = None
    """Put only if this is the current version, 0 if there must be no item; None for any."""


@dataclass(slots=True, frozen=True)
class Batch:
    """Writes that are made together."""

    puts: Sequence[Put] = ()
    renewed: Sequence[Name] = ()
    """Items to renew."""
    swept: Sequence[Name] = ()
    """Items to delete if they are still expired."""
    moment: int = 0

    @property
    def names(self) -> list[Name]:
        """All names it involves."""
        return [*(put.name for put in self.puts), *self.renewed, *self.swept]


def about(batches: Sequence[Batch]) -> dict[str, Any]:
    """The metadata of a commit: the fields of a step."""
    names = [name for batch in batches for name in batch.names]
    put, *others = names
    one = f"{'.'.join(put.namespace)}: {put.key}"[:200]
    return {
        "time": max(batch.moment for batch in batches),
        "logic_step": _step(batches),
        "description": f"{len(names)} items" if others else one,
    }


def _step(batches: Sequence[Batch]) -> str:
    puts = [put for batch in batches for put in batch.puts]
    if puts:
        return "delete" if all(put.value is None for put in puts) else "put"
    return "renew" if any(batch.renewed for batch in batches) else "sweep"


@dataclass(slots=True, eq=False)
class Job:
    """A batch and its outcome."""

    batch: Batch
    error: Exception | None = None
    deleted: int = 0
    """How many items it deleted."""
    is_done: bool = False


class Editor:
    """Applies batches to a map, in order. Can be called again, for a newer map."""

    def __init__(
        self,
        jobs: Sequence[Job],
        writer: MapWriter,
        codec: Codec,
        is_living: Callable[[str, Stored, int], bool],
    ) -> None:
        self._jobs, self._writer, self._codec = jobs, writer, codec
        self._knows_living = is_living
        self.draft: Draft | None = None
        """What was made of the newest map."""

    def __call__(self, root: ObjectId | None, read: Reader) -> Edited:
        """The new map; raises `Unchanged` and `NotStorable`.

        A batch that finds another version than it expects is left out, and its job gets the error.
        """
        self.draft = None
        work = _Work(self._writer, root)
        names = [name for job in self._jobs for name in job.batch.names]
        work.read(names, Loader(read, self._codec))
        for job in self._jobs:
            job.error, job.deleted = None, 0
            before = work.state()
            try:
                self._apply(work, job)
            except VersionConflict as conflict:
                work.restore(before)
                job.error = conflict
        shelf = work.shelf()
        if not shelf.entries:
            raise Unchanged
        try:
            self.draft = self._writer.write(root, shelf)
        except NotStorable as error:
            raise self._named(error) from error
        return self.draft.edited

    def _apply(self, work: _Work, job: Job) -> None:
        batch = job.batch
        for name in batch.renewed:
            self._renew(work, name, batch.moment)
        for name in batch.swept:
            record = work.record(name)
            if record is not None and not self._is_living(name, record, batch.moment):
                work.delete(name, record, batch.moment)
                job.deleted += 1
        for put in batch.puts:
            self._put(work, put, batch.moment)

    def _put(self, work: _Work, put: Put, moment: int) -> None:
        name = put.name
        stored = work.record(name)
        living = stored if stored and self._is_living(name, stored, moment) else None
        if put.if_version is not None:
            actual = 0 if living is None else living.version
            if actual != put.if_version:
                raise VersionConflict(name.namespace, name.key, put.if_version, actual)
        if put.value is None:
            if stored is not None:
                work.delete(name, stored, moment)
            return
        gone = work.tombstone(name)
        last = stored.version if stored else gone.version if gone else 0
        record = Record(
            put.value,
            last + 1,
            living.created_at if living else moment,
            # Times of one key never decrease, whatever clocks say.
            max(moment, living.updated_at + 1) if living else moment,
            work.before,
            len(put.vectors),
            put.ttl,
            ending(moment, put.ttl),
        )
        work.replace(name, stored, record, put.vectors)

    def _is_living(self, name: Name, record: Record, moment: int) -> bool:
        if record.expires_at is None:
            return True
        return self._knows_living(to_key(ITEM, name), record.to_stored(), moment)

    def _renew(self, work: _Work, name: Name, moment: int) -> None:
        record = work.record(name)
        if record is None or record.ttl is None or not self._is_living(name, record, moment):
            return
        end = ending(moment, record.ttl)
        if end is not None and record.expires_at is not None and end > record.expires_at:
            work.set(to_key(ITEM, name), record._replace(expires_at=end).to_stored())

    def _named(self, error: NotStorable) -> NotStorable:
        """The error, with a path relative to the value that was put."""
        for put in [put for job in self._jobs for put in job.batch.puts]:
            begin = format_path((to_key(ITEM, put.name), "value"))
            if error.path.startswith(begin):
                path = "value" + error.path.removeprefix(begin)
                return NotStorable(error.reason, f"{path} of {put.name}")
        return error


class _Work:
    """A map and its pending changes."""

    def __init__(self, writer: MapWriter, root: ObjectId | None) -> None:
        self._writer, self._view = writer, writer.open(root).view
        self.before = root or b""
        self._was: dict[str, Any] = {}
        self._now: dict[str, Any] = {}
        """What stands in the place of what was there."""

    def read(self, names: Sequence[Name], loader: Loader) -> None:
        """Prefetch everything that may be needed."""
        keys = {to_key(kind, name) for name in names for kind in (ITEM, GONE)}
        keys |= {to_key(NAMESPACE, Name(name.namespace, "")) for name in names}
        self._view.fetch([self._writer.encode_key(key) for key in keys])
        parts = {key: part for key in sorted(keys) if (part := self._part(key)) is not None}
        self._was = {key: loader.part(part) for key, part in parts.items()}
        self._now = dict(self._was)

    def _part(self, key: str) -> bytes | None:
        _, entry = self._view.locate(self._writer.encode_key(key))
        return None if entry is None else entry.body

    def record(self, name: Name) -> Record | None:
        """The current record of an item."""
        stored = self._now.get(to_key(ITEM, name))
        return None if stored is None else Record.from_stored(stored)

    def tombstone(self, name: Name) -> Tombstone | None:
        """The tombstone of a deleted item."""
        stored = self._now.get(to_key(GONE, name))
        return None if stored is None else Tombstone(**stored)

    def set(self, key: str, stored: Any) -> None:
        """Set a key; None removes it."""
        self._now[key] = stored

    def state(self) -> dict[str, Any]:
        """A savepoint for `restore`."""
        return dict(self._now)

    def restore(self, state: dict[str, Any]) -> None:
        """Undo the changes since a savepoint."""
        self._now = state

    def delete(self, name: Name, stored: Record, moment: int) -> None:
        """Take an item away."""
        self.replace(name, stored, None, {})
        tombstone = Tombstone(stored.version, moment, self.before)
        self.set(to_key(GONE, name), tombstone._asdict())

    def replace(
        self, name: Name, old: Record | None, new: Record | None, vectors: Mapping[str, bytes]
    ) -> None:
        """Put an item in place of another, updating all derived entries."""
        self.set(to_key(ITEM, name), None if new is None else new.to_stored())
        if new is not None:
            self.set(to_key(GONE, name), None)
        key = to_key(VECTORS, name)
        if vectors:
            self.set(key, {"paths": list(vectors), "rows": b"".join(vectors.values())})
        elif old is not None and old.vectors:
            self.set(key, None)
        self._count(name, old, -1)
        self._count(name, new, 1)

    def _count(self, name: Name, record: Record | None, by: int) -> None:
        if record is None:
            return
        key = to_key(NAMESPACE, Name(name.namespace, ""))
        counted = Counted(**(self._now.get(key) or {}))
        lasting = counted.lasting + (by if record.ttl is None else 0)
        items = counted.items + by
        self.set(key, Counted(items, lasting)._asdict() if items else None)

    def shelf(self) -> CachedMap:
        """The keys to set and to remove."""
        made = CachedMap()
        for key, one in self._now.items():
            # Values are not compared: putting an equal one makes a new version.
            if one is self._was.get(key, ABSENT) or self._is_same_count(key, one):
                continue
            part = self._part(key)
            if one is not None:
                made.entries[self._writer.encode_key(key)] = CacheEntry(key, one, part)
            elif part is not None:
                made.entries[self._writer.encode_key(key)] = CacheEntry(key, ABSENT, part)
        return made

    def _is_same_count(self, key: str, counted: Any) -> bool:
        return key.startswith(NAMESPACE) and counted == self._was.get(key)


class Group:
    """The writers of one process."""

    def __init__(self, commit: Callable[[Sequence[Job]], None]) -> None:
        self._commit = commit
        self.begin()
        _groups.add(self)

    def begin(self) -> None:
        """Start without a queue: a forked process has none of the parent's writers."""
        self._turn = threading.Lock()
        self._queue = threading.Lock()
        self._waiting: list[Job] = []

    def run(self, batch: Batch) -> Job:
        """Write a batch, perhaps with others; raises its own error."""
        job = Job(batch)
        with self._queue:
            self._waiting.append(job)
        with self._turn:
            while not job.is_done:
                self._write(self._chosen())
        if job.error is not None:
            raise job.error
        return job

    def _chosen(self) -> list[Job]:
        """The longest waiting batches with distinct keys."""
        chosen: list[Job] = []
        left: list[Job] = []
        met: set[Name] = set()
        with self._queue:
            for job in self._waiting:
                names = set(job.batch.names)
                fits = len(chosen) < _MOST and len(met) + len(names) <= _MOST_ITEMS
                if met.isdisjoint(names) and (fits or not chosen):
                    chosen.append(job)
                else:
                    left.append(job)
                met |= names  # A later batch never overtakes one with the same key.
            self._waiting = left
        return chosen

    def _write(self, jobs: list[Job]) -> None:
        try:
            self._commit(jobs)
        except NotStorable as error:
            if len(jobs) == 1:
                jobs[0].error = error
            else:
                for job in jobs:
                    self._write([job])
        except Exception as error:  # noqa: BLE001 - each that waits is told
            for job in jobs:
                job.error = error
        except BaseException:
            for job in jobs:
                job.error = Unavailable(
                    "the thread that wrote this together with its own was interrupted. It may "
                    "have been stored: read it again."
                )
            raise
        finally:
            for job in jobs:
                job.is_done = True


def _begin_anew() -> None:
    for group in list(_groups):
        group.begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
