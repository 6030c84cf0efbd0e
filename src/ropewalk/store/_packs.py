"""Packs: the frames of one commit in one piece of bytes.

Each frame is compressed on its own, so one can be read without the others. An
engine that keeps its own index stores `Pack.data` alone. One that keeps packs as
files or in a bucket stores `seal_pack(pack)`, which carries the index at its end:

    frames, one after the other
    index     for each: id (32 bytes), length (4), depth (1)
    count     4 bytes
    checksum  8 bytes, the first of SHA-256 over index and count
    magic     4 bytes, "RWP" and the version
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from struct import Struct
from typing import NamedTuple

from ropewalk.errors import FormatError
from ropewalk.store._frames import MAX_DEPTH
from ropewalk.store._framing import Framed
from ropewalk.tree.objects import ObjectId

_ROW = Struct("<32sIB")
_COUNT = Struct("<I")
_CHECKSUM_SIZE = 8
_MAGIC = b"RWP\x01"
FOOTER_SIZE = _COUNT.size + _CHECKSUM_SIZE + len(_MAGIC)


class Entry(NamedTuple):
    """Where one frame is inside its pack."""

    id: ObjectId
    offset: int
    length: int
    depth: int


class Pack(NamedTuple):
    """Frames in one piece of bytes, and where each is."""

    data: bytes
    entries: tuple[Entry, ...]

    def frame(self, entry: Entry) -> bytes:
        """The frame of one entry."""
        return self.data[entry.offset : entry.offset + entry.length]


def build_pack(frames: Iterable[Framed]) -> Pack:
    """Put frames together, in order."""
    pieces: list[bytes] = []
    entries: list[Entry] = []
    offset = 0
    for framed in frames:
        length = len(framed.frame)
        entries.append(Entry(framed.id, offset, length, framed.depth))
        pieces.append(framed.frame)
        offset += length
    return Pack(b"".join(pieces), tuple(entries))


def seal_pack(pack: Pack) -> bytes:
    """The pack with its index, as it is stored where no other index is kept."""
    rows = [_ROW.pack(entry.id, entry.length, entry.depth) for entry in pack.entries]
    index = b"".join(rows) + _COUNT.pack(len(rows))
    return b"".join((pack.data, index, _checksum(index), _MAGIC))


def open_pack(sealed: bytes) -> Pack:
    """Read a sealed pack; `FormatError` if it is torn or none."""
    size = index_size(sealed[-FOOTER_SIZE:])
    end = len(sealed) - size - FOOTER_SIZE
    if end < 0:
        raise FormatError("a pack is shorter than its index")
    return Pack(sealed[:end], read_index(sealed[end:], end))


def index_size(footer: bytes) -> int:
    """How many bytes of index stand before a pack's last `FOOTER_SIZE` bytes."""
    if len(footer) != FOOTER_SIZE or not footer.endswith(_MAGIC):
        raise FormatError("a pack has no footer: it is torn, or it is no pack")
    count: int = _COUNT.unpack_from(footer)[0]
    return count * _ROW.size


def read_index(tail: bytes, data_size: int) -> tuple[Entry, ...]:
    """The entries of a pack, from its index and footer and the size of its frames."""
    footer = tail[-FOOTER_SIZE:]
    size = index_size(footer)
    index = tail[: size + _COUNT.size]
    checksum = footer[_COUNT.size : -len(_MAGIC)]
    if len(tail) != size + FOOTER_SIZE or checksum != _checksum(index):
        raise FormatError("a pack's index does not match its checksum")
    entries = _entries(index[:size])
    if sum(entry.length for entry in entries) != data_size:
        raise FormatError("a pack's index does not match the size of its frames")
    return entries


def _entries(rows: bytes) -> tuple[Entry, ...]:
    entries: list[Entry] = []
    offset = 0
    for id, length, depth in _ROW.iter_unpack(rows):
        if depth > MAX_DEPTH:
            raise FormatError(f"a pack's index gives a frame the depth {depth}")
        entries.append(Entry(id, offset, length, depth))
        offset += length
    return tuple(entries)


def _checksum(index: bytes) -> bytes:
    return sha256(index).digest()[:_CHECKSUM_SIZE]
