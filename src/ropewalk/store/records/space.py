"""One space: its cell, the entries in it, and the parts it references.

The cell holds the tail of the log, so a commit is one compare-and-set. The result of the log up to
its last packed record is in a part, the state: the refs, and the names of the indexes. An index
covers several segments: the parts they are in, what can be found in them, and the shared objects
they reference. A new index is merged with preceding ones that are not much larger, so there are
few.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import ormsgpack

from ropewalk.store.forking import freed_after_fork
from ropewalk.store.model import KEY, LeaseRecord, Move, Ref
from ropewalk.store.record import Append, Row
from ropewalk.store.records.cells import (
    PARTS,
    SPACES,
    Extent,
    Gone,
    Parts,
    read_part,
    reading,
    seal,
    unseal,
)
from ropewalk.store.segment import Packed, find_rows
from ropewalk.tree.objects import ID_SIZE, ObjectId

_KEPT: Final = 16  # Indexes of a space that are cached.
_SEGMENTS: Final = 2  # The same for segments, besides those the store opened.


class Head(NamedTuple):
    """The cell of a space, without the entries."""

    revision: int
    """Increases with each swap, so the bytes of a cell never recur."""
    sweep: int
    """Raised before unreferenced parts are removed: earlier writers then put theirs again."""
    epoch: int
    packed: int
    """The last record in a segment."""
    state: str
    """The part with the state at that record; empty if nothing is packed."""
    tokens: int
    leases: tuple[LeaseRecord, ...]

    def changed(self, **changes: Any) -> Head:
        """The head after the next swap."""
        return self._replace(revision=self.revision + 1, **changes)


EMPTY: Final = Head(0, 0, 1, 0, "", 0, ())


class Entry(NamedTuple):
    """A record in the tail."""

    dictionary: int | None
    """The record whose body is the dictionary of this one."""
    moves: tuple[tuple[str, ObjectId | None], ...]
    key: bytes | None
    """The key that finds it."""
    names: tuple[ObjectId, ...]
    """Shared objects that it references."""
    frame: bytes
    """With a crc32 in front; only that if the rest is in an overflow part."""
    overflow: str
    """The part with the frame of a large record."""


class Index(NamedTuple):
    """Where packed records are, and what they reference."""

    segments: tuple[tuple[int, int, str], ...]
    """First record, last record, part."""
    lookup: bytes
    names: bytes
    """Ids of shared objects."""

    def ids(self) -> set[ObjectId]:
        """The ids of the shared objects."""
        names = self.names
        return {names[at : at + ID_SIZE] for at in range(0, len(names), ID_SIZE)}

    def joined(self, other: Index) -> Index:
        """Merge with the following index."""
        names = b"".join(sorted(self.ids() | other.ids()))
        return Index(self.segments + other.segments, self.lookup + other.lookup, names)


class Moment(NamedTuple):
    """A snapshot of a space, as the basis of a change."""

    raw: bytes | None
    head: Head
    tail: list[bytes]
    """The encoded entries; never modified."""

    @property
    def sequence(self) -> int:
        """The last record."""
        return self.head.packed + len(self.tail)


class Space:
    """One space as last read. Not thread-safe: hold its `lock`."""

    def __init__(self, name: str, parts: Parts) -> None:
        self.name = name
        self.lock = freed_after_fork(threading.Lock())
        self.looked = False
        """Whether it was ever read."""
        self.known = False
        """Whether its cell in `KNOWN` was seen."""
        self._parts = parts
        self.forget()

    def forget(self) -> None:
        """Reset to a space that does not exist."""
        self.moment = Moment(None, EMPTY, [])
        self.refs: dict[str, Ref] = {}
        self.own: tuple[int, bytes] = (0, b"")
        """The last record that this store object appended, as it is spelled."""
        self._packed_refs: dict[str, Ref] = {}
        self.entries: list[Entry] = []
        self.indexes: tuple[Extent, ...] = ()
        self._opened: dict[str, Index] = {}
        self._segments: dict[str, Packed] = {}

    @property
    def head(self) -> Head:
        """The cell without the entries."""
        return self.moment.head

    @property
    def sequence(self) -> int:
        """The last record."""
        return self.moment.sequence

    def take(self, now: Moment) -> None:
        """Adopt a new snapshot; raises `Gone`, and is unchanged then."""
        before, seen = self.moment, len(self.entries)
        grown = now.head.state == before.head.state and now.tail[:seen] == before.tail
        if not grown:
            refs, indexes = self._read_state(now.head.state)
            self.refs, self._packed_refs, self.indexes = dict(refs), refs, indexes
            self.entries, seen = [], 0
            names = {one.name for one in indexes}
            self._opened = {name: one for name, one in self._opened.items() if name in names}
        for sequence, data in enumerate(now.tail[seen:], now.head.packed + seen + 1):
            entry = _decode_entry(self.name, data)
            move_refs(self.refs, sequence, entry)
            self.entries.append(entry)
        self.moment = now

    def continues(self, now: Moment) -> bool:
        """Whether this is known to continue the history already seen.

        A server may lose its last moments, and other writers continue from there.
        """
        before = self.moment
        if before.raw is None:
            return True
        if now.head.state == before.head.state:
            return now.tail[: len(before.tail)] == before.tail
        left = before.tail[max(now.head.packed - before.head.packed, 0) :]
        return (
            now.head.packed >= before.head.packed
            and len(left) > 0
            and now.tail[: len(left)] == left
        )

    def leans(self) -> int:
        """The last record of this store object, if it is in the tail; else 0."""
        sequence, entry = self.own
        at = sequence - self.head.packed - 1
        return sequence if 0 <= at < len(self.entries) and self.moment.tail[at] == entry else 0

    # The tail.

    def rows(self, first: int, last: int) -> list[Row]:
        """Records of the tail."""
        packed = self.head.packed
        some = range(max(first, packed + 1), min(last, self.sequence) + 1)
        entries = [self.entries[sequence - packed - 1] for sequence in some]
        keys = {one.overflow: part_key(self.name, one.overflow) for one in entries if one.overflow}
        large = self._parts.get_many(list(keys.values())) if keys else {}
        found: list[Row] = []
        for sequence, one in zip(some, entries, strict=True):
            frame = one.frame
            if one.overflow:
                key = keys[one.overflow]
                if key not in large:
                    raise Gone(key)
                frame += large[key]
            found.append(Row(sequence, one.dictionary, frame))
        return found

    def refs_of(self, moves: Iterable[Move]) -> dict[str, Ref]:
        """The current targets of the refs that are to be moved."""
        return {name: self.refs[name] for name, _, _ in moves if name in self.refs}

    def refs_at(self, sequence: int) -> dict[str, Ref]:
        """The refs after a record of the tail."""
        refs, packed = dict(self._packed_refs), self.head.packed
        for number, one in enumerate(self.entries[: sequence - packed], packed + 1):
            move_refs(refs, number, one)
        return refs

    # What is packed.

    def _read_state(self, name: str) -> tuple[dict[str, Ref], tuple[Extent, ...]]:
        if not name:
            return {}, ()
        key = part_key(self.name, name)
        data = read_part(self._parts, key)
        with reading(key):
            refs, indexes = unseal(key, data)
            found = [Ref(*one) for one in refs]
            return {one.name: one for one in found}, tuple([Extent(*one) for one in indexes])

    def index(self, name: str) -> Index:
        """One of the indexes."""
        found = self._opened.get(name)
        if found is None:
            key = part_key(self.name, name)
            data = read_part(self._parts, key)
            with reading(key):
                segments, lookup, names = unseal(key, data)
                listed = tuple([(first, last, part) for first, last, part in segments])
                found = Index(listed, lookup, names)
            if len(self._opened) < _KEPT:
                self._opened[name] = found
        return found

    def segment(self, sequence: int) -> Packed | None:
        """The segment that holds a record."""
        for extent in reversed(self.indexes):
            segments = self.index(extent.name).segments
            if segments[0][0] <= sequence:
                for first, last, part in segments:
                    if first <= sequence <= last:
                        return self._read_segment(part)
        return None

    def _read_segment(self, part: str) -> Packed:
        found = self._segments.pop(part, None)
        if found is None:
            key = part_key(self.name, part)
            data = read_part(self._parts, key)
            with reading(key):
                found = Packed(*unseal(key, data))
        self._segments[part] = found
        if len(self._segments) > _SEGMENTS:
            del self._segments[next(iter(self._segments))]
        return found

    def find(self, name: bytes) -> list[int]:
        """The packed records with a commit or key: see `store.segment`."""
        found: list[int] = []
        for extent in self.indexes:
            found += find_rows(self.index(extent.name).lookup, name)
        return found

    def packed_names(self) -> set[ObjectId]:
        """Shared objects listed for packed records."""
        return {id for one in self.indexes for id in self.index(one.name).ids()}

    def names(self) -> set[ObjectId]:
        """Shared objects that the space references, as far as listed."""
        return self.packed_names().union(*[one.names for one in self.entries])

    def parts(self) -> set[str]:
        """The keys of all parts the space references."""
        names = {self.head.state} | {one.name for one in self.indexes}
        names |= {one.overflow for one in self.entries}
        names |= {part for one in self.indexes for *_, part in self.index(one.name).segments}
        return {part_key(self.name, name) for name in names - {""}}


def move_refs(refs: dict[str, Ref], sequence: int, one: Entry) -> None:
    """Apply the ref moves of a record."""
    for name, target in one.moves:
        if target is None:
            refs.pop(name, None)
        else:
            refs[name] = Ref(name, target, sequence)


# Encoding.


def space_key(space: str) -> str:
    """The key of a space's cell."""
    return SPACES + space


def part_key(space: str, name: str) -> str:
    """The key of a part of a space."""
    return f"{PARTS}{space}/{name}"


def encode_space(space: str, head: Head, tail: Sequence[bytes]) -> bytes:
    """Encode a cell."""
    leases = [tuple(one) for one in head.leases]
    return seal(space_key(space), [*head[:-1], leases, tail])


def decode_space(space: str, raw: bytes) -> Moment:
    """Decode a cell; raises `FormatError`."""
    key = space_key(space)
    with reading(key):
        *numbers, state, tokens, leases, tail = unseal(key, raw)
        revision, sweep, epoch, packed = map(int, numbers)
        held = tuple([LeaseRecord(*one) for one in leases])
        head = Head(revision, sweep, epoch, packed, str(state), int(tokens), held)
        return Moment(raw, head, list(tail))


def encode_entry(append: Append, dictionary: int | None, frame: bytes, overflow: str) -> bytes:
    """Encode a record of the tail."""
    moves = [(name, target) for name, _, target in append.moves]
    key = append.metadata.get(KEY)
    return ormsgpack.packb([dictionary, moves, key, sorted(append.names), frame, overflow])


def _decode_entry(space: str, data: bytes) -> Entry:
    with reading(space_key(space)):
        dictionary, moves, key, names, frame, overflow = ormsgpack.unpackb(data)
        listed = tuple([(name, target) for name, target in moves])
        return Entry(dictionary, listed, key, tuple(names), frame, overflow)


def encode_segment(key: str, packed: Packed) -> bytes:
    """Encode a segment."""
    return seal(key, list(packed))


def encode_index(key: str, index: Index) -> bytes:
    """Encode an index."""
    return seal(key, list(index))


def encode_state(key: str, refs: Iterable[Ref], indexes: Sequence[Extent]) -> bytes:
    """Encode a state."""
    return seal(key, [[list(ref) for ref in sorted(refs)], [list(one) for one in indexes]])
