"""Changes of a thread: what a call wants, and what becomes of it at the newest contents."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import time_ns
from typing import Any, NamedTuple

from ropewalk.codec import Codec
from ropewalk.errors import MessageNotFound
from ropewalk.threads._contents import (
    IDS,
    IDS_KEY,
    LAG,
    MARKS,
    RECORD,
    STATE,
    STATE_KEY,
    Contents,
    Marks,
)
from ropewalk.tree import ABSENT
from ropewalk.tree.map import CachedMap, CacheEntry


class Incoming(NamedTuple):
    """A message that is to be stored."""

    id: Any
    stored: dict[str, Any]
    timeless: bool = False
    """Whether nobody said when it was made: then the time that is stored stays."""
    is_new: bool = False
    """Whether its id was made just now, so that no thread can have it."""


@dataclass(slots=True, frozen=True)
class Changes:
    """What a call wants to change in a thread; what is left out stays."""

    puts_state: bool = False
    state: Any = None
    clears_state: bool = False
    messages: Sequence[Incoming] = ()
    about: Mapping[str, Any] | None = None
    """What is said of all the messages together."""
    record: Mapping[str, Any] | None = None
    removes: Sequence[Any] = ()
    """The ids of messages that are to go; each must be there."""
    cleans: bool = False
    time: int = field(default_factory=lambda: time_ns() // 1000)
    """When that was wanted, in microseconds since 1970."""


class Known(NamedTuple):
    """What of some contents need not be read."""

    marks: Marks
    next: int
    latest: dict[bytes, int]
    """The positions that the map of ids lacks, by encoded id."""

    def tell(self, contents: Contents) -> None:
        """Spare the contents the reading."""
        contents.marks, contents.next, contents.latest = self
        contents.is_listed = True


class Plan(NamedTuple):
    """Changes, ready to be written on top of some contents."""

    shelf: CachedMap
    known: Known

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes."""
        return not (self.shelf.entries or self.shelf.inner)


class Planner:
    """Makes a plan. What is the same as before is left out of it."""

    def __init__(self, contents: Contents, codec: Codec, state: CacheEntry | None) -> None:
        self._contents, self._encode = contents, codec.encode
        self._state = state
        """What is known of the state that is stored."""
        self._shelf = CachedMap()
        self._marks = contents.marks
        self._next = contents.next
        self._latest = dict(contents.latest)
        self._is_unlisted = not contents.is_listed

    def plan(self, changes: Changes) -> Plan:
        """What becomes of some changes; raises `MessageNotFound`."""
        if changes.cleans:
            self._clean()
        if changes.puts_state:
            self._put_state(changes.state)
        elif changes.clears_state:
            self._remove(STATE)
        if changes.puts_state or changes.clears_state or changes.cleans:
            self._marks = self._marks._replace(saved=os.urandom(8))
        for message in changes.messages:
            self._put_message(message, changes.about)
        for id in changes.removes:
            self._remove_message(id)
        if changes.record is not None:
            self._set(RECORD, self._dated(changes.record, changes.time))
        if self._next - self._marks.listed > LAG or self._is_unlisted:
            self._list_ids()
        if self._marks != self._contents.marks:
            self._set(MARKS, self._marks.to_stored())
        return Plan(self._shelf, Known(self._marks, self._next, self._latest))

    def _put_state(self, state: Any) -> None:
        slot = self._state
        if slot is None:
            slot = CacheEntry(STATE, state, self._contents.part(STATE))
        slot.value = state
        self._shelf.entries[STATE_KEY] = slot

    def _put_message(self, message: Incoming, about: Mapping[str, Any] | None) -> None:
        key = self._encode(message.id)
        position = self._latest.get(key)
        if position is None and not message.is_new:
            position = self._contents.position_under(key)
        if position is None:
            position = self._latest[key] = self._next
            self._next += 1
            self._place(position, _with(message.stored, about), None)
            return
        part, stored = self._contents.part(position), message.stored
        if part is None:
            self._place(position, _with(stored, about), None)
            return
        known = self._contents.load(part)
        if message.timeless:
            stored = {**stored, "created_at": known["created_at"]}
        if self._is_same(stored, known):
            self._shelf.entries.pop(self._encode(position), None)  # It was edited, and now back.
        else:
            self._place(position, _with(stored, about), part)

    def _is_same(self, stored: dict[str, Any], known: dict[str, Any]) -> bool:
        """Whether a message is stored already, whatever was said of those beside it."""
        about = known.pop("about", None)
        if self._are_same(stored, known):
            return True
        if about is None:
            return False
        # Whoever reads a message gets what was said of all in it, and may put that again.
        return self._are_same(stored, {**known, "metadata": {**about, **known.get("metadata", {})}})

    def _are_same(self, one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
        return one.keys() == other.keys() and all(
            self._encode(one[name]) == self._encode(other[name]) for name in one
        )

    def _place(self, position: int, stored: Any, known: bytes | None) -> None:
        self._shelf.entries[self._encode(position)] = CacheEntry(position, stored, known)

    def _remove_message(self, id: Any) -> None:
        position = self._contents.position_of(id)
        if position is None:
            raise no_message(id)
        self._place(position, ABSENT, self._contents.part(position))
        if self._latest.pop(self._encode(id), None) is None:
            self._ids[self._encode(id)] = CacheEntry(id, ABSENT, self._encode(position))
        if position == self._next - 1:
            self._marks = self._marks._replace(past=self._next)

    def _dated(self, record: Mapping[str, Any], time: int) -> dict[str, Any]:
        """A record that says when it was first put."""
        if "created_at" in record:
            return dict(record)
        known = self._contents.value(RECORD, {})
        return {**record, "created_at": known.get("created_at", time)}

    def _list_ids(self) -> None:
        """Let the map of ids catch up; if it is not right, make it so."""
        found = self._contents.listed_ids if self._is_unlisted else ()
        known = {entry.key: entry.body for entry in found}
        for key, part in known.items():
            self._ids[key] = CacheEntry(None, ABSENT, part)
        for key, position in self._latest.items():
            self._ids[key] = CacheEntry(None, position, known.get(key))
        self._marks = self._marks._replace(listed=self._next)
        self._latest = {}

    def _clean(self) -> None:
        for row in self._contents.rows():
            self._place(row.position, ABSENT, self._contents.part(row.position))
        for name in (STATE, IDS, RECORD):
            self._remove(name)
        self._marks = self._marks._replace(past=self._next, listed=self._next)
        self._latest, self._is_unlisted = {}, False

    def _remove(self, name: str) -> None:
        part = self._contents.part(name)
        if part is not None:
            self._shelf.entries[self._encode(name)] = CacheEntry(name, ABSENT, part)

    def _set(self, name: str, value: Any) -> None:
        self._shelf.entries[self._encode(name)] = CacheEntry(name, value, self._contents.part(name))

    @property
    def _ids(self) -> dict[bytes, CacheEntry]:
        return self._shelf.inner.setdefault(IDS_KEY, CachedMap()).entries


def _with(stored: dict[str, Any], about: Mapping[str, Any] | None) -> dict[str, Any]:
    return {**stored, "about": dict(about)} if about else stored


def no_message(id: Any) -> MessageNotFound:
    """The error for a message that is not in a thread."""
    return MessageNotFound(f"the thread has no message {id!r:.80}")
