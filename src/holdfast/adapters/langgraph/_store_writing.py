"""What a batch makes of the newest map."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.adapters.langgraph._store_expiry import ending
from holdfast.adapters.langgraph._store_keys import GONE, ITEM, NAMESPACE, VECTORS, Name, to_key
from holdfast.adapters.langgraph._store_records import Counted, Record, Stored, Tombstone
from holdfast.codec import Codec, format_path
from holdfast.errors import NotStorable, VersionConflict
from holdfast.tree import ABSENT, Edited, ObjectId, Reader
from holdfast.tree._load import Loader
from holdfast.tree._map_writer import Draft, MapWriter, Shelf, Slot


class Unchanged(Exception):
    """There is nothing to do."""


@dataclass(slots=True, frozen=True)
class Put:
    """A value that is to stand under a name; None takes away what stands there."""

    name: Name
    value: dict[str, Any] | None
    ttl: float | None = None
    vectors: Mapping[str, bytes] = field(default_factory=dict)
    """By the paths of the texts that they stand for."""
    if_version: int | None = None
    """Only if this is the version now, 0 if there is no item; None is whatever there is."""


@dataclass(slots=True, frozen=True)
class Batch:
    """What is to be written at once."""

    puts: Sequence[Put] = ()
    renewed: Sequence[Name] = ()
    """Items whose time begins again."""
    swept: Sequence[Name] = ()
    """Items that go, if their time is still over."""
    moment: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether nobody wants anything."""
        return not (self.puts or self.renewed or self.swept)

    @property
    def names(self) -> list[Name]:
        """Whatever it is about."""
        return [*(put.name for put in self.puts), *self.renewed, *self.swept]

    @property
    def step(self) -> str:
        """What the commit is called."""
        if self.puts:
            return "delete" if all(put.value is None for put in self.puts) else "put"
        return "renew" if self.renewed else "sweep"

    @property
    def description(self) -> str:
        """What the commit says about itself."""
        names = self.names
        if len(names) == 1:
            return f"{'.'.join(names[0].namespace)}: {names[0].key}"[:200]
        return f"{len(names)} items"


class Editor:
    """Applies a batch to a map. May be called again, for a newer map."""

    def __init__(
        self,
        batch: Batch,
        writer: MapWriter,
        codec: Codec,
        is_living: Callable[[str, Stored, int], bool],
    ) -> None:
        self._batch, self._writer, self._codec = batch, writer, codec
        self._knows_living = is_living
        self.draft: Draft | None = None
        """What was made of the newest map."""
        self.deleted = 0
        """How many items that lost."""

    def __call__(self, root: ObjectId | None, read: Reader) -> Edited:
        """The new map; raises `Unchanged`, `VersionConflict` and `NotStorable`."""
        self.draft, self.deleted = None, 0
        shelf = self._work(root, read).shelf()
        if not shelf.slots:
            raise Unchanged
        try:
            self.draft = self._writer.write(root, shelf)
        except NotStorable as error:
            raise self._named(error) from error
        return self.draft.edited

    def _work(self, root: ObjectId | None, read: Reader) -> _Work:
        batch = self._batch
        work = _Work(self._writer, root)
        work.read(batch.names, Loader(read, self._codec))
        for name in batch.renewed:
            self._renew(work, name)
        for name in batch.swept:
            record = work.record(name)
            if record is not None and not self._is_living(name, record):
                self._delete(work, name, record)
        for put in batch.puts:
            self._put(work, put)
        return work

    def _put(self, work: _Work, put: Put) -> None:
        name, moment = put.name, self._batch.moment
        stored = work.record(name)
        living = stored if stored and self._is_living(name, stored) else None
        if put.if_version is not None:
            actual = 0 if living is None else living.version
            if actual != put.if_version:
                raise VersionConflict(name.namespace, name.key, put.if_version, actual)
        if put.value is None:
            if stored is not None:
                self._delete(work, name, stored)
            return
        gone = work.tombstone(name)
        last = stored.version if stored else gone.version if gone else 0
        record = Record(
            put.value,
            last + 1,
            living.created_at if living else moment,
            # Of one key, what is put later is never older, whatever clocks say.
            max(moment, living.updated_at + 1) if living else moment,
            work.before,
            len(put.vectors),
            put.ttl,
            ending(moment, put.ttl),
        )
        work.replace(name, stored, record, put.vectors)

    def _is_living(self, name: Name, record: Record) -> bool:
        if record.expires_at is None:
            return True
        return self._knows_living(to_key(ITEM, name), record.to_stored(), self._batch.moment)

    def _delete(self, work: _Work, name: Name, stored: Record) -> None:
        self.deleted += 1
        work.replace(name, stored, None, {})
        tombstone = Tombstone(stored.version, self._batch.moment, work.before)
        work.set(to_key(GONE, name), tombstone._asdict())

    def _renew(self, work: _Work, name: Name) -> None:
        record, moment = work.record(name), self._batch.moment
        if record is None or record.ttl is None or not self._is_living(name, record):
            return
        end = ending(moment, record.ttl)
        if end is not None and record.expires_at is not None and end > record.expires_at:
            work.set(to_key(ITEM, name), record._replace(expires_at=end).to_stored())

    def _named(self, error: NotStorable) -> NotStorable:
        """The error, with a path from the value that was put."""
        for put in self._batch.puts:
            begin = format_path((to_key(ITEM, put.name), "value"))
            if error.path.startswith(begin):
                path = "value" + error.path.removeprefix(begin)
                return NotStorable(error.reason, f"{path} of {put.name}")
        return error


class _Work:
    """A map, and what is to change in it."""

    def __init__(self, writer: MapWriter, root: ObjectId | None) -> None:
        self._writer, self._view = writer, writer.open(root).view
        self.before = root or b""
        self._was: dict[str, Any] = {}
        self._now: dict[str, Any] = {}
        """What stands in the place of what was there."""

    def read(self, names: Sequence[Name], loader: Loader) -> None:
        """Fetch all that may be needed."""
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
        """The item as it is now."""
        stored = self._now.get(to_key(ITEM, name))
        return None if stored is None else Record.from_stored(stored)

    def tombstone(self, name: Name) -> Tombstone | None:
        """What is left of an item that was deleted."""
        stored = self._now.get(to_key(GONE, name))
        return None if stored is None else Tombstone(**stored)

    def set(self, key: str, stored: Any) -> None:
        """Let something stand under a key; None takes it away."""
        self._now[key] = stored

    def replace(
        self, name: Name, old: Record | None, new: Record | None, vectors: Mapping[str, bytes]
    ) -> None:
        """Put an item, with all that stands elsewhere because of it, in the place of another."""
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

    def shelf(self) -> Shelf:
        """What to set and what to remove."""
        made = Shelf()
        for key, one in self._now.items():
            # Values are not compared: who puts one again wants a new version.
            if one is self._was.get(key, ABSENT) or self._is_same_count(key, one):
                continue
            part = self._part(key)
            if one is not None:
                made.slots[self._writer.encode_key(key)] = Slot(key, one, part)
            elif part is not None:
                made.slots[self._writer.encode_key(key)] = Slot(key, ABSENT, part)
        return made

    def _is_same_count(self, key: str, counted: Any) -> bool:
        return key.startswith(NAMESPACE) and counted == self._was.get(key)
