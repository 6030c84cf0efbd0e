"""Segments: records of one space, packed together after the fact.

First, as one block, stands what the newest commit of each branch in the segment reaches; then
what was superseded, in blocks of 64 KB with the first one as dictionary. So the newest version
is read through one block, and an old one through two. A segment needs no bytes outside itself.

The head of a segment, before it is compressed, is

    first, count    varints: the first sequence number, and how many records there are
    blocks          varint count, and of each its length as varint and its crc32 (4 bytes)
    records         of each: a varint count of nodes, and of each node its kind (0 for one that was
                    collected), payload, hole, hints, block and start as varints

The operations of the records stand in a block of their own, behind all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias
from zlib import crc32

from ropewalk.errors import Corrupt, FormatError
from ropewalk.store.compression import compress, expand, read_varint, read_varints, varint
from ropewalk.store.pace import pause
from ropewalk.store.record import (
    BY_HASH,
    POSITION_BITS,
    Node,
    Piece,
    Place,
    Record,
    place_of,
    position_of,
    read_hints,
    sequence_of,
)
from ropewalk.tree.objects import ObjectId

BLOCK: Final = 64 * 1024
_CRC: Final = 4


class Packed(NamedTuple):
    """A segment as it is stored."""

    first: int
    last: int
    head: bytes
    data: bytes


Spot: TypeAlias = tuple[int, ...]
"""Where a node stands in a segment: its kind, payload, hole and hints, its block, and where in
that it starts. A plain tuple, because a check makes one for each node of a store."""
_SPOT: Final = 6
_PIECES: Final = 64
"""After so many pieces the packer rests, if it has worked for long."""


def build(space: str, records: Sequence[Record], heads: Iterable[Place]) -> Packed:
    """Pack records of a space that follow each other; `heads` are where its branches are."""
    first = records[0].sequence
    alive = reached(heads, {one.sequence: one for one in records})
    live: list[tuple[int, Place, Piece]] = []
    superseded: list[tuple[int, Place, Piece]] = []
    for record in records:
        base = record.sequence << POSITION_BITS
        for at, piece in enumerate(record.pieces):
            if piece is not None:
                (live if base | at in alive else superseded).append((piece.kind, base | at, piece))
    pause()
    blocks: list[bytes] = []
    spots: dict[Place, bytes] = {}
    _lay(live, 1 << 30, blocks, spots)
    if not blocks:
        blocks.append(b"")
    _lay(superseded, BLOCK, blocks, spots)
    blocks.append(b"".join([varint(len(one.header)) + one.header for one in records]))
    dictionary = blocks[0] or None
    packed = [compress(blocks[0], small=True)]
    packed += [compress(one, dictionary, small=True) for one in blocks[1:-1]]
    packed.append(compress(blocks[-1], small=True))
    out = [varint(first), varint(len(records)), varint(len(packed))]
    out += [varint(len(one)) + crc32(one).to_bytes(_CRC, "little") for one in packed]
    for record in records:
        out.append(varint(len(record.pieces)))
        base = record.sequence << POSITION_BITS
        for at, piece in enumerate(record.pieces):
            out.append(b"\0" if piece is None else spots[base | at])
    pause()
    head = compress(b"".join(out), small=True)
    return Packed(
        first,
        records[-1].sequence,
        _checksum(space, head) + head,
        b"".join(packed),
    )


def _checksum(space: str, head: bytes) -> bytes:
    """The crc32 of a head, which also tells whose segment it is."""
    return crc32(head, crc32(space.encode())).to_bytes(_CRC, "little")


def _lay(
    pieces: list[tuple[int, Place, Piece]],
    limit: int,
    blocks: list[bytes],
    spots: dict[Place, bytes],
) -> None:
    """Put pieces into blocks, and note of each where it is, as the head of a segment says it."""
    pieces.sort(key=lambda one: one[0])  # What is of one kind resembles each other.
    block: list[bytes] = []
    size = 0
    for number, (_, place, piece) in enumerate(pieces, 1):
        kind, payload, hole, hints = piece
        length = len(payload) + len(hints)
        if block and size + length > limit:
            blocks.append(b"".join(block))
            block, size = [], 0
        spots[place] = _spot(kind, len(payload), hole, len(hints), len(blocks)) + varint(size)
        block += (payload, hints)
        size += length
        if not number % _PIECES:
            pause()
    if block:
        blocks.append(b"".join(block))


@lru_cache(1024)  # Many nodes of a space are alike.
def _spot(*numbers: int) -> bytes:
    return b"".join(map(varint, numbers))


def reached(starts: Iterable[Place], records: Mapping[int, Record]) -> set[Place]:
    """What is reached from some places, among these records."""
    found: set[Place] = set()
    pending = [one for one in starts if sequence_of(one) in records]
    while pending:
        place = pending.pop()
        if place in found:
            continue
        sequence = sequence_of(place)
        record, at = records[sequence], position_of(place)
        piece = record.pieces[at] if at < len(record.pieces) else None
        if piece is None:
            continue
        found.add(place)
        if piece.hints:
            links = read_hints(piece.hints, sequence)
            if piece.kind == _COMMIT:
                links = links[:1] + links[2:]  # Its parent is another version.
            pending += [one for one in links if one != BY_HASH and sequence_of(one) in records]
        pause()
    return found


_COMMIT: Final = 16


class Segment:
    """A segment that is read, of which only those blocks are opened that are asked for."""

    def __init__(self, space: str, head: bytes, data: bytes) -> None:
        self._space, self._data, self._crc = space, data, head[:_CRC]
        self.first = self.last = 0
        self._blocks: dict[int, bytes] = {}
        self._records: dict[int, Record] = {}
        self._headers: list[bytes] | None = None
        self._stored = len(head) + len(data)
        self._scale: float | None = None
        try:
            if _checksum(space, head[_CRC:]) != head[:_CRC]:
                raise FormatError("its head does not match its checksum")
            self._read_head(expand(head[_CRC:]))
        except FormatError as error:
            raise self.damaged(str(error)) from error

    def _read_head(self, head: bytes) -> None:
        self.first, at = read_varint(head, 0)
        count, at = read_varint(head, at)
        blocks, at = read_varint(head, at)
        self.last = self.first + count - 1
        self._frames: list[tuple[int, int, bytes]] = []
        start = 0
        for _ in range(blocks):
            size, at = read_varint(head, at)
            self._frames.append((start, start + size, head[at : at + _CRC]))
            start, at = start + size, at + _CRC
        if start != len(self._data) or blocks < 2:
            raise FormatError("it has other bytes than its head says")
        numbers, at = read_varints(head[at:]), 0
        self._table: list[list[Spot | None]] = []
        try:
            for _ in range(count):
                row: list[Spot | None] = []
                self._table.append(row)
                nodes, at = numbers[at], at + 1
                for _ in range(nodes):
                    if numbers[at]:
                        row.append(tuple(numbers[at : at + _SPOT]))
                        at += _SPOT
                    else:
                        row.append(None)
                        at += 1
        except IndexError:
            at = -1
        if at != len(numbers):
            raise FormatError("its head has other numbers than it says")

    @property
    def size(self) -> int:
        """About how many bytes it holds in memory."""
        return len(self._data) + sum(len(one) for one in self._blocks.values())

    def is_of(self, packed: Packed) -> bool:
        """Whether it was read from these bytes: a collection writes it anew under its numbers."""
        return self.last == packed.last and self._crc == packed.head[:_CRC]

    def record(self, sequence: int) -> Record:
        """One record. Its nodes are read when they are asked for; raises `Corrupt`."""
        found = self._records.get(sequence)
        if found is None:
            at = sequence - self.first
            pieces = _Pieces(self._table[at], self._piece)
            found = self._records[sequence] = Record(sequence, self._header, pieces, self.scale)
        return found

    def records(self) -> list[Record]:
        """All records."""
        return [self.record(sequence) for sequence in range(self.first, self.last + 1)]

    def released(self) -> list[Record]:
        """All records, of which the segment remembers none: they go with the last of them."""
        found = self.records()
        self._records.clear()
        return found

    def scale(self) -> float:
        """How many bytes the store takes for each byte of the nodes, compressed together."""
        if self._scale is None:
            size = sum([one[1] + one[3] for row in self._table for one in row if one])
            self._scale = (self._stored / size) if size else 0.0
        return self._scale

    def _header(self, sequence: int) -> bytes:
        if self._headers is None:
            block, at = self._block(len(self._frames) - 1), 0
            headers: list[bytes] = []
            while at < len(block):
                size, at = read_varint(block, at)
                headers.append(block[at : at + size])
                at += size
            if len(headers) != len(self._table):
                raise self.damaged("its operations are not those of its records")
            self._headers = headers
        return self._headers[sequence - self.first]

    def _piece(self, spot: Spot) -> Piece:
        kind, size, hole, width, number, start = spot
        block = self._blocks.get(number) or self._block(number)
        middle = start + size
        end = middle + width
        if end > len(block):
            raise self.damaged("a node ends behind its block")
        return Piece(kind, block[start:middle], hole, block[middle:end])

    def _block(self, number: int) -> bytes:
        found = self._blocks.get(number)
        if found is None:
            if number >= len(self._frames):
                raise self.damaged("it has no such block")
            start, end, crc = self._frames[number]
            frame = self._data[start:end]
            if crc32(frame).to_bytes(_CRC, "little") != crc:
                raise self.damaged(f"block {number} does not match its checksum")
            plain = number in (0, len(self._frames) - 1)
            try:
                found = expand(frame, None if plain else self._block(0) or None)
            except FormatError as error:
                raise self.damaged(str(error)) from error
            self._blocks[number] = found
        return found

    def damaged(self, reason: str) -> Corrupt:
        """The error for what cannot be as it is."""
        return Corrupt(
            f"the segment of {self._space!r} with records {self.first} to {self.last} is damaged: "
            f"{reason}. Restore the store from a copy; other spaces are not affected."
        )


class _Pieces(Sequence["Piece | None"]):
    """The pieces of a record in a segment, each opened when it is looked at."""

    __slots__ = ("_open", "_spots")

    def __init__(self, spots: list[Spot | None], open: Callable[[Spot], Piece]) -> None:
        self._spots, self._open = spots, open

    def __len__(self) -> int:
        return len(self._spots)

    def __iter__(self) -> Iterator[Piece | None]:
        return iter([None if one is None else self._open(one) for one in self._spots])

    def __getitem__(self, at: int) -> Piece | None:  # type: ignore[override]
        spot = self._spots[at]
        return None if spot is None else self._open(spot)


def without(record: Record, header: bytes, keep: Callable[[Place], bool]) -> Record:
    """A record without the nodes that are not kept; ids that were left out are written back."""
    pieces: list[Piece | None] = []
    for at, piece in enumerate(record.pieces):
        if piece is None or not keep(place_of(record.sequence, at)):
            pieces.append(None)
            continue
        if piece.hole and pieces[-1] is None:
            node = record.node(at)
            assert node is not None
            piece = Piece(piece.kind, node.payload, 0, piece.hints)
        pieces.append(piece)
    return Record(record.sequence, header, pieces)


def commits_in(record: Record) -> list[tuple[ObjectId, Place]]:
    """The ids of the commits in a record, with their places."""
    found: list[tuple[ObjectId, Place]] = []
    for at, piece in enumerate(record.pieces):
        if piece is not None and piece.kind == _COMMIT:
            node = record.node(at)
            assert isinstance(node, Node)
            found.append((node.id, place_of(record.sequence, at)))
    return found


# Rows by which packed records are found, for engines without an index of their own: 24 bytes for
# each commit and each key. What it is (1 byte, 0 or the length of the key), 16 bytes of it, and the
# record (7 bytes). There may be other records among those that are found.

_SEQUENCE: Final = 7
_NAME: Final = 16
_ROW: Final = 1 + _NAME + _SEQUENCE


def commit_name(id: ObjectId) -> bytes:
    """What a commit is found by."""
    return b"\0" + id[:_NAME]


def key_name(key: bytes) -> bytes:
    """What the key of an operation is found by."""
    return bytes((len(key),)) + key.ljust(_NAME, b"\0")


def lookup_row(name: bytes, sequence: int) -> bytes:
    """That a record brings this."""
    return name + sequence.to_bytes(_SEQUENCE, "big")


def find_rows(rows: bytes, name: bytes) -> list[int]:
    """The records that bring this, in the order of the rows."""
    found: list[int] = []
    at = rows.find(name)
    while at >= 0:
        if at % _ROW == 0:
            found.append(int.from_bytes(rows[at + len(name) : at + _ROW], "big"))
        at = rows.find(name, at + 1)
    return found
