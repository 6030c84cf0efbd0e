"""The record of a space on a key-value store, the pages of its log, and copies of its refs.

The record is what is compared and swapped. It holds the last operations; older ones are in
full pages, which never change. A chain of hashes goes through all of them, so that pages of
another past are noticed. Refs are what the operations come to. A copy of them, as they were
at the end of a page, saves a new process from reading every page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from hashlib import sha256
from typing import Any, NamedTuple

from ropewalk.store._decide import Recorded
from ropewalk.store._key_value_cells import damaged, page_key, refs_key, seal, space_key, unseal
from ropewalk.store._records import (
    REMEMBERED_WRITES,
    LeaseRecord,
    Operation,
    Ref,
    decode_operation,
    encode_operation,
)

PAGE = 16
"""Operations in a page of the log."""

_START = bytes(8)  # The chain before the first operation.
_MARK = 8  # Bytes that a record remembers of a write id.


class Entry(NamedTuple):
    """An operation as it is stored, and the digest of the write that it was."""

    digest: bytes
    data: bytes

    def operation(self, space: str) -> Operation:
        """The operation."""
        return decode_operation(space, self.data)


class Segment(NamedTuple):
    """Operations that follow each other: a page, or the end of the log."""

    first: int
    """The number of the operation before them."""
    chain: bytes
    """The chain up to there."""
    entries: tuple[Entry, ...]

    def links(self) -> Iterator[tuple[int, bytes, Entry]]:
        """The number and the entry of each operation, with the chain up to it."""
        number, chain = self.first, self.chain
        for entry in self.entries:
            number, chain = number + 1, _next(chain, entry)
            yield number, chain, entry

    def end(self) -> bytes:
        """The chain up to the last of them."""
        return reduce(_next, self.entries, self.chain)


_NOTHING = Segment(0, _START, ())


@dataclass(frozen=True, slots=True)
class Record:
    """Everything about a space that changes, apart from what follows from its log."""

    epoch: int
    revision: int = 0
    """Counts all changes."""
    tokens: int = 0
    """The last token that a lease was granted with."""
    leases: Mapping[str, LeaseRecord] = field(default_factory=dict)
    marks: bytes = b""
    """Of each of the latest write ids a few bytes, oldest first."""
    copied: int = 0
    """The operation after which the refs were last copied; 0 if they never were."""
    tail: Segment = _NOTHING
    """The operations behind the last full page."""

    @property
    def sequence(self) -> int:
        """The number of the last operation."""
        return self.tail.first + len(self.tail.entries)

    def changed(self, **changes: Any) -> Record:
        """The next revision."""
        return replace(self, revision=self.revision + 1, **changes)

    def grown(self, recorded: Recorded) -> Record:
        """The record after one more operation; a full page has gone out of it."""
        tail = self.tail
        if self.page is not None:
            tail = Segment(self.sequence, tail.end(), ())
        entry = Entry(recorded.digest, encode_operation(recorded.operation))
        marks = self.marks + mark_of(recorded.operation.write_id)
        return self.changed(
            epoch=recorded.operation.epoch,
            tail=tail._replace(entries=(*tail.entries, entry)),
            marks=marks[-REMEMBERED_WRITES * _MARK :],
        )

    @property
    def page(self) -> Segment | None:
        """The page that must be stored before the record can grow, if it is full."""
        return self.tail if len(self.tail.entries) >= PAGE else None

    def marked(self, write_id: str) -> Iterator[int]:
        """The numbers of the operations that may have this write id, newest first."""
        mark = mark_of(write_id)
        if mark not in self.marks:
            return
        for back, at in enumerate(range(len(self.marks) - _MARK, -1, -_MARK)):
            if self.marks[at : at + _MARK] == mark:
                yield self.sequence - back


class Position(NamedTuple):
    """How far a log was followed, and the refs that it came to."""

    sequence: int
    chain: bytes
    refs: dict[str, Ref]


def nowhere() -> Position:
    """Before the first operation."""
    return Position(0, _START, {})


def mark_of(write_id: str) -> bytes:
    """What a record remembers of a write id."""
    return sha256(write_id.encode()).digest()[:_MARK]


def move_refs(refs: dict[str, Ref], operation: Operation) -> None:
    """Do to refs what an operation did."""
    for name, _, target in operation.moves:
        if target is None:
            refs.pop(name, None)
        else:
            refs[name] = Ref(name, target, operation.sequence)


# In bytes.


def encode_record(space: str, record: Record) -> bytes:
    """Spell a record."""
    return seal(
        space_key(space),
        [
            record.revision,
            record.epoch,
            record.tokens,
            [list(one) for one in record.leases.values()],
            record.marks,
            record.copied,
            _spell(record.tail),
        ],
    )


def decode_record(space: str, data: bytes) -> Record:
    """Read a record; `FormatError` if it is none."""
    key = space_key(space)
    match unseal(key, data):
        case [
            int(revision), int(epoch), int(tokens), list(leases), bytes(marks), int(copied), tail
        ]:  # fmt: skip
            held = [_decode_lease(key, one) for one in leases]
            return Record(
                epoch,
                revision,
                tokens,
                {one.name: one for one in held},
                marks,
                copied,
                _decode_segment(key, tail),
            )
    raise damaged(key)


def encode_page(space: str, segment: Segment) -> tuple[str, bytes]:
    """Where a page belongs, and how it is spelled."""
    key = page_key(space, segment.first // PAGE)
    return key, seal(key, _spell(segment))


def decode_page(key: str, data: bytes) -> Segment:
    """Read a page."""
    return _decode_segment(key, unseal(key, data))


def encode_refs(space: str, position: Position) -> tuple[str, bytes]:
    """Where a copy of refs belongs, and how it is spelled."""
    key = refs_key(space, position.sequence)
    refs = [list(position.refs[name]) for name in sorted(position.refs)]
    return key, seal(key, [position.sequence, position.chain, refs])


def decode_refs(key: str, data: bytes) -> Position:
    """Read a copy of refs."""
    match unseal(key, data):
        case [int(sequence), bytes(chain), list(spelled)]:
            refs = [_decode_ref(key, one) for one in spelled]
            return Position(sequence, chain, {ref.name: ref for ref in refs})
    raise damaged(key)


def _spell(segment: Segment) -> list[Any]:
    return [segment.first, segment.chain, [list(entry) for entry in segment.entries]]


def _decode_segment(key: str, spelled: object) -> Segment:
    match spelled:
        case [int(first), bytes(chain), list(entries)]:
            return Segment(first, chain, tuple(_decode_entry(key, one) for one in entries))
    raise damaged(key)


def _decode_entry(key: str, spelled: object) -> Entry:
    match spelled:
        case [bytes(digest), bytes(data)]:
            return Entry(digest, data)
    raise damaged(key)


def _decode_lease(key: str, spelled: object) -> LeaseRecord:
    match spelled:
        case [str(name), str(holder), int(token), int(beat), int() | float() as duration]:
            return LeaseRecord(name, holder, token, beat, duration)
    raise damaged(key)


def _decode_ref(key: str, spelled: object) -> Ref:
    match spelled:
        case [str(name), bytes(target), int(sequence)]:
            return Ref(name, target, sequence)
    raise damaged(key)


def _next(chain: bytes, entry: Entry) -> bytes:
    return sha256(chain + entry.digest + entry.data).digest()[: len(_START)]
