"""What a pack holds, as bytes in its row: one entry for each object.

An entry is 44 bytes: the object's id, where its frame starts, and two numbers that hold
length, depth and whether it is gone, and payload size and kind. Entries of objects that
are stored against another come first, and their bases stand in a list of their own. In
a row, a frame is kept without the id of its base; in a file, it is kept as it is.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ropewalk.errors import FormatError
from ropewalk.store._frames import read_size
from ropewalk.store._framing import Framed
from ropewalk.tree._objects import ID_SIZE, Kind, ObjectId

ENTRY = struct.Struct("<32sIII")
ORDINAL_BITS = 24
"""A place is the number of a pack, and in this many low bits the ordinal of an entry."""

_GONE = 1 << 27
_LENGTH = _GONE - 1
_DEPTH = 28
_KIND = 25
_SIZE = (1 << _KIND) - 1
_KINDS = {int(kind): kind for kind in Kind}


class Entry(NamedTuple):
    """One object in a pack."""

    id: ObjectId
    start: int
    length: int
    depth: int
    size: int
    """Bytes of its payload."""
    kind: Kind
    base: ObjectId | None
    gone: bool


class Contents(NamedTuple):
    """The columns of a pack in a row."""

    entries: bytes
    bases: bytes | None
    data: bytes


def prefix(id: ObjectId) -> int:
    """The number by which the index finds an object; several may share it."""
    return int.from_bytes(id[:8], "big", signed=True)


def build_contents(frames: Iterable[Framed]) -> Contents:
    """Frames as a row."""
    entries: list[bytes] = []
    bases: list[ObjectId] = []
    pieces: list[bytes] = []
    offset = 0
    for id, frame, base, depth in deltas_first(frames):
        size, start = read_size(frame)
        if base is not None:
            bases.append(base)
            frame = frame[:start] + frame[start + ID_SIZE :]
        length = len(frame)
        entries.append(ENTRY.pack(id, offset, length | depth << _DEPTH, size | frame[1] << _KIND))
        pieces.append(frame)
        offset += length
    return Contents(b"".join(entries), b"".join(bases) or None, b"".join(pieces))


def describe_file(
    frames: Sequence[Framed], stored: Iterable[ObjectId]
) -> tuple[bytes, bytes | None]:
    """Entries and bases of a file of these frames; those that are not stored are gone."""
    kept = set(stored)
    entries: list[bytes] = []
    offset = 0
    for id, frame, _, depth in frames:
        length = len(frame)
        mark = 0 if id in kept else _GONE
        about = read_size(frame)[0] | frame[1] << _KIND
        entries.append(ENTRY.pack(id, offset, length | depth << _DEPTH | mark, about))
        offset += length
    bases = b"".join(one.base for one in frames if one.base is not None)
    return b"".join(entries), bases or None


def deltas_first(frames: Iterable[Framed]) -> list[Framed]:
    """In the order of entries."""
    listed = list(frames)
    if any(one.base is not None for one in listed):
        listed.sort(key=lambda one: one.base is None)
    return listed


def read_entry(entries: bytes, bases: bytes | None, ordinal: int) -> Entry:
    """One entry of a pack."""
    try:
        id, start, place, about = ENTRY.unpack_from(entries, ordinal * ENTRY.size)
        return _entry(id, start, place, about, bases, ordinal)
    except (KeyError, ValueError, TypeError, struct.error) as error:
        raise FormatError(f"a pack's list of objects cannot be read: {error}") from None


def read_entries(entries: bytes | None, bases: bytes | None) -> Iterator[Entry]:
    """All entries of a pack, also of what is gone."""
    if not entries:
        return
    try:
        for ordinal, (id, start, place, about) in enumerate(ENTRY.iter_unpack(entries)):
            yield _entry(id, start, place, about, bases, ordinal)
    except (KeyError, ValueError, TypeError, struct.error) as error:
        raise FormatError(f"a pack's list of objects cannot be read: {error}") from None


def living_ids(entries: bytes | None) -> Iterator[tuple[int, ObjectId]]:
    """Ordinal and id of what is not gone."""
    # A damaged list must not keep anybody from the rest: who looks for its objects is told.
    if not isinstance(entries, bytes):
        return
    whole = entries[: len(entries) - len(entries) % ENTRY.size]
    for ordinal, (id, _, place, _) in enumerate(ENTRY.iter_unpack(whole)):
        if not place & _GONE:
            yield ordinal, id


def mark_gone(entries: bytes, ordinals: Iterable[int]) -> bytes:
    """The entries, with these gone."""
    changed = bytearray(entries)
    for ordinal in ordinals:
        at = ordinal * ENTRY.size
        id, start, place, about = ENTRY.unpack_from(changed, at)
        ENTRY.pack_into(changed, at, id, start, place | _GONE, about)
    return bytes(changed)


def whole_frame(piece: bytes, base: ObjectId | None) -> bytes:
    """A frame from what a row holds of it; what cannot be one is left as it is."""
    if base is None:
        return piece
    try:
        start = read_size(piece)[1]
    except FormatError:
        return piece
    return piece[:start] + base + piece[start:]


def _entry(
    id: ObjectId, start: int, place: int, about: int, bases: bytes | None, ordinal: int
) -> Entry:
    depth = place >> _DEPTH
    at = ordinal * ID_SIZE
    base = bases[at : at + ID_SIZE] if depth and bases is not None else None
    gone = bool(place & _GONE)
    kind = _KINDS[about >> _KIND]
    return Entry(id, start, place & _LENGTH, depth, about & _SIZE, kind, base, gone)
