"""Packs in a bucket: the frames of a commit, and at the end what each of them is.

    frames    one after the other
    rows      for each: id (32 bytes), length of frame and payload (4 each), kind, depth (1 each)
    bases     32 bytes for each row with a depth, in their order
    footer    number of rows (4), of bases (4), checksum over all from the rows on (8), magic (4)

A collection looks at kinds, sizes and bases of all objects, so these are in the rows: then it
need not read the frames. The name of a pack begins with the epoch in which it was written, and
then the time, so that packs are listed in about the order in which they came.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from hashlib import sha256
from struct import Struct
from typing import NamedTuple

from ropewalk.errors import FormatError
from ropewalk.store._frames import MAX_DEPTH, parse_header
from ropewalk.store._framing import Framed
from ropewalk.tree.objects import ID_SIZE, Kind, ObjectId

_ROW = Struct("<32sIIBB")
_COUNTS = Struct("<II")
_CHECKSUM = 8
_MAGIC = b"RWS\x01"
FOOTER = _COUNTS.size + _CHECKSUM + len(_MAGIC)
_DIGITS = 12

TOKEN = 6
"""Random bytes at the end of the name of a pack."""


class Row(NamedTuple):
    """One frame in a pack."""

    id: ObjectId
    offset: int
    length: int
    """Of the frame."""
    size: int
    """Of the payload."""
    kind: Kind
    depth: int
    base: ObjectId | None


def pack_name(epoch: int, not_before: int = 0) -> str:
    """A new name for a pack of an epoch; behind that of another with this time."""
    now = max(time.time_ns() // 1_000_000, not_before + 1)
    return f"{epoch:0{_DIGITS}x}-{now:0{_DIGITS}x}-{os.urandom(TOKEN).hex()}"


def token_of(name: str) -> bytes:
    """What tells a pack from all others."""
    try:
        return bytes.fromhex(name[-2 * TOKEN :])
    except ValueError:
        return bytes(TOKEN)


def name_before(name: str, milliseconds: int) -> str:
    """What sorts before the packs of the same epoch that came so much earlier."""
    return f"{epoch_of(name):0{_DIGITS}x}-{max(time_of(name) - milliseconds, 0):0{_DIGITS}x}"


def epoch_of(name: str) -> int | None:
    """The epoch in the name of a pack; None if it is no such name."""
    return _number(name, 0)


def time_of(name: str) -> int:
    """The time in the name of a pack, in milliseconds."""
    return _number(name, 1) or 0


def _number(name: str, part: int) -> int | None:
    parts = name.split("-")
    if len(parts) != 3 or len(parts[0]) != _DIGITS or len(parts[1]) != _DIGITS:
        return None
    try:
        return int(parts[part], 16)
    except ValueError:
        return None


def rows_of(frames: Iterable[Framed]) -> tuple[Row, ...]:
    """What frames are, one after the other."""
    rows: list[Row] = []
    offset = 0
    for id, frame, base, depth in frames:
        header = parse_header(frame)
        rows.append(Row(id, offset, len(frame), header.length, header.kind, depth, base))
        offset += len(frame)
    return tuple(rows)


def seal(frames: Iterable[bytes], rows: Sequence[Row]) -> bytes:
    """A pack, as it is stored."""
    return b"".join((*frames, seal_rows(rows)))


def seal_rows(rows: Sequence[Row]) -> bytes:
    """The end of a pack."""
    table = [_ROW.pack(one.id, one.length, one.size, one.kind, one.depth) for one in rows]
    bases = [one.base for one in rows if one.base is not None]
    body = b"".join((*table, *bases, _COUNTS.pack(len(table), len(bases))))
    return body + _checksum(body) + _MAGIC


def rows_size(tail: bytes) -> int:
    """How many bytes the end of a pack takes; `FormatError` if it is no pack."""
    if len(tail) < FOOTER or not tail.endswith(_MAGIC):
        raise FormatError("a pack has no footer: it is torn, or it is no pack")
    rows, bases = _COUNTS.unpack_from(tail, len(tail) - FOOTER)
    return int(rows) * _ROW.size + int(bases) * ID_SIZE + FOOTER


def read_rows(tail: bytes) -> tuple[Row, ...]:
    """The rows of a pack, from its end."""
    size = rows_size(tail)
    start = len(tail) - size
    checked = len(tail) - _CHECKSUM - len(_MAGIC)
    if start < 0 or tail[checked : checked + _CHECKSUM] != _checksum(tail[start:checked]):
        raise FormatError("the rows of a pack do not match their checksum")
    count, bases = _COUNTS.unpack_from(tail, len(tail) - FOOTER)
    table = tail[start : start + count * _ROW.size]
    return _rows(table, tail[start + len(table) :], bases)


def _rows(table: bytes, bases: bytes, count: int) -> tuple[Row, ...]:
    rows: list[Row] = []
    offset = used = 0
    for id, length, size, kind, depth in _ROW.iter_unpack(table):
        base = None
        if depth:
            base = bases[used * ID_SIZE : (used + 1) * ID_SIZE]
            used += 1
        if depth > MAX_DEPTH or kind not in Kind._value2member_map_:
            raise FormatError("a row of a pack is none")
        rows.append(Row(id, offset, length, size, Kind(kind), depth, base))
        offset += length
    if used != count:
        raise FormatError("the bases of a pack do not match its rows")
    return tuple(rows)


def _checksum(body: bytes) -> bytes:
    return sha256(body).digest()[:_CHECKSUM]
