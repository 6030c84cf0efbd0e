"""A commit as an engine receives it, an `Append`, and as it is stored: a record in a log.

`prepare` checks the arguments of a commit once; engines trust what it returns.

A record's body, before it is compressed, is

    header   varint length, and an operation as msgpack
    count    varint: how many nodes follow
    nodes    for each: kind (1 byte); payload, hole and hints as varints (their lengths, and
             where in the payload an id was left out, plus one)
    bytes    for each node its payload, then its hints

Where a payload holds the id of the node just before it in the record, that is left out: the
reader computes it. The hints of a node say where its links lead, in the order in which they stand
in the payload: 0 for a shared object, which is found by its hash; 1 + 2 * position for a node of
the same record; 2 + 2 * position and a sequence number for one of an earlier record. They are not
hashed, so a node keeps its id wherever it is written.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final, NamedTuple, TypeAlias
from zlib import crc32

import ormsgpack

from ropewalk.errors import FormatError, InvalidInput, LeaseHeld, LeaseLost
from ropewalk.store.compression import compress, read_varint, take_varints, varint
from ropewalk.store.model import (
    KEY,
    MAX_KEY,
    MAX_METADATA_BYTES,
    MAX_WRITE_ID,
    SCALARS,
    STEP,
    Fence,
    Move,
    Operation,
    Scalar,
    check_ids,
)
from ropewalk.store.names import check_name, check_space, known_name, known_space
from ropewalk.store.validation import expect, expect_whole
from ropewalk.tree.nodes import links
from ropewalk.tree.objects import ID_SIZE, KIND_BYTES, Commit, Kind, Object, ObjectId, first_parent

MAX_PAYLOAD: Final = 16 * 1024 * 1024
"""The most bytes that one object may hold."""

_ID_TYPES: Final = (bytes, type(None))
_BYTES: Final = frozenset({bytes})
_SIZES: Final = frozenset({ID_SIZE})


@dataclass(slots=True)
class Append:
    """One commit: what was asked for, checked; and what a `LogStore` makes of it, a record."""

    space: str
    sent: Sequence[Object]
    """The new objects, each once."""
    needs: frozenset[ObjectId]
    """Objects that must be in the store: those that the new ones link to."""
    targets: frozenset[ObjectId]
    """The targets of moves that are not among the new objects; must be in the store, too."""
    moves: tuple[Move, ...]
    fences: tuple[Fence, ...]
    write_id: str
    time: int
    metadata: Mapping[str, Scalar]
    share: bool
    """Whether its objects are for every space."""
    step: Commit | None
    """The commit that it brings."""
    fresh: bool
    """Whether its write id was never sent before, so that no earlier write can have it."""

    # The record, drafted anew if the space's epoch changes before it is appended.
    objects: Sequence[Object] = field(init=False)
    """The nodes of the record."""
    shared: Mapping[ObjectId, Object] = field(init=False)
    """Shared objects that are stored with it."""
    names: frozenset[ObjectId] = field(init=False)
    """Shared objects that the record links to, without those that the space is known to name."""
    missing: tuple[ObjectId, ...] = field(init=False)
    """Objects that it needs and that are not in the store."""
    known_epoch: int = field(init=False)
    """The epoch of the space at which the places in the body were valid."""
    body: bytes = field(init=False)
    parent: int | None = field(init=False)
    """The sequence number of the record of the step's first parent."""
    leans: bool = field(init=False)
    """Whether its frame is compressed with a dictionary."""
    recorded: Operation | None = None
    """The operation of the earlier write, if this one is a repetition."""

    def frame(self, dictionary: bytes | None) -> bytes:
        """Compress the body, and note whether with a dictionary."""
        self.leans = dictionary is not None
        return compress(self.body, dictionary)


def fenced_off(space: str, fence: Fence) -> LeaseLost | LeaseHeld:
    """The error for a fence whose token is not that of the lease."""
    if fence.token == 0:
        return LeaseHeld(
            f"somebody holds lease {fence.name!r} of {space!r}, and only its holder may write. "
            "Nothing was written; try again when it was given back, or acquire it."
        )
    return LeaseLost(
        f"lease {fence.name!r} of {space!r} is no longer held with token {fence.token}. Nothing "
        "was written; acquire the lease again."
    )


def check_objects(objects: Iterable[Object]) -> dict[ObjectId, Object]:
    """Objects by id, each once. That they are named by their hashes is trusted."""
    checked: dict[ObjectId, Object] = {}
    for one in objects:
        if not isinstance(one, Object) or type(one.payload) is not bytes:
            raise InvalidInput(f"objects must be Objects with bytes, not {type(one).__name__}")
        id, kind, payload = one
        if type(kind) is not Kind:
            raise InvalidInput(f"{kind!r} is not a kind of object")
        if len(payload) > MAX_PAYLOAD:
            raise InvalidInput(
                f"an object of {len(payload)} bytes is too large: the most is "
                f"{MAX_PAYLOAD}. Cut it into several."
            )
        if type(id) is not bytes or len(id) != ID_SIZE:
            check_ids([id], "objects")
        checked[id] = one
    return checked


def prepare(  # noqa: PLR0913 - as `Store.commit`
    space: str,
    objects: Mapping[ObjectId, Object],
    needs: Iterable[ObjectId],
    moves: Iterable[Move],
    fence: Fence | Sequence[Fence] | None,
    operation: Mapping[str, Scalar] | None,
    write_id: str | None,
    *,
    share: bool,
    step: Commit | None,
    fresh: bool,
) -> Append:
    """A commit to append; `InvalidInput` for what no store would take."""
    try:
        known_space(space)
    except TypeError:
        check_space(space)
    checked = check_moves(space, moves)
    if write_id is not None and not fresh:
        check_write_id(write_id)
    if step is not None and not isinstance(step, Commit):
        expect(False, "a step is a Commit", step)
    metadata = {} if operation is None else check_metadata(operation)
    needed = frozenset(needs)
    if not ({*map(type, needed)} <= _BYTES and {*map(len, needed)} <= _SIZES):
        check_ids(needed, "needs")
    targets = frozenset([move.target for move in checked if move.target is not None])
    return Append(
        space,
        list(objects.values()),
        needed.difference(objects),
        targets.difference(objects),
        checked,
        () if fence is None else check_fences(space, fence),
        os.urandom(16).hex() if write_id is None else write_id,
        time.time_ns() // 1000,
        metadata,
        share,
        step,
        fresh or write_id is None,
    )


def check_metadata(metadata: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """A copy of an operation's metadata; `InvalidInput` if it cannot be stored."""
    if type(metadata) is not dict and not isinstance(metadata, Mapping):
        raise InvalidInput(f"an operation's metadata is a dict, not {metadata!r:.80}")
    copy = dict(metadata)
    for key, value in copy.items():
        if type(key) is not str or type(value) not in SCALARS:
            raise InvalidInput(
                f"an operation's metadata holds plain values by string; {key!r} is "
                f"{type(value).__name__}. Put larger things into the commit."
            )
    try:
        size = len(ormsgpack.packb(copy))
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"an operation's metadata cannot be stored: {error}") from None
    if KEY in copy:
        check_key(copy[KEY])
    if STEP in copy:
        check_ids([copy[STEP]], 'what an operation has as its "step"')  # type: ignore[list-item]
    if size > MAX_METADATA_BYTES:
        raise InvalidInput(
            f"an operation's metadata takes {size} bytes; the most is {MAX_METADATA_BYTES}"
        )
    return copy


def check_key(key: object) -> None:
    """Raise `InvalidInput` for what no operation can be found by."""
    if type(key) is not bytes or not 1 <= len(key) <= MAX_KEY:
        raise InvalidInput(f"an operation's key is 1 to {MAX_KEY} bytes, not {key!r:.80}")


def check_moves(space: str, moves: Iterable[Move]) -> tuple[Move, ...]:
    """Ref moves, each name at most once."""
    checked = tuple(moves)
    for move in checked:
        if not isinstance(move, Move):
            raise InvalidInput(
                f"moves is a list of Move(name, expected, target); it holds a {type(move).__name__}"
            )
        try:
            known_name(space, move.name)
        except TypeError:
            check_name(space, move.name)
        for id in move[1:]:
            if id is not None and (type(id) is not bytes or len(id) != ID_SIZE):
                check_ids([id], "moves")
    if len(checked) > 1 and len({move.name for move in checked}) != len(checked):
        raise InvalidInput("a commit moves each ref at most once")
    return checked


def check_fences(space: str, fence: Fence | Sequence[Fence]) -> tuple[Fence, ...]:
    """One fence or several."""
    checked: tuple[Fence, ...]
    if isinstance(fence, Iterable) and not isinstance(fence, str | bytes):
        checked = tuple(fence)
    else:
        checked = (fence,)
    for one in checked:
        expect(isinstance(one, Fence), "a fence must be a Fence", one)
        check_name(space, one.name)
        expect_whole(one.token, 0, "the token of a fence")
    return checked


def check_write_id(write_id: str) -> None:
    """Raise `InvalidInput` for a write id of a caller's own that cannot be stored."""
    if not isinstance(write_id, str) or not 1 <= len(write_id) <= MAX_WRITE_ID:
        raise InvalidInput(f"a write id has 1 to {MAX_WRITE_ID} characters, not {write_id!r:.80}")
    if not write_id.isascii() or not write_id.isprintable():
        raise InvalidInput(f"a write id is printable ASCII, not {write_id!r:.80}")


Place: TypeAlias = int
"""Where a node is: its record's sequence number, and in the low bits its position there."""

POSITION_BITS: Final = 20
MAX_NODES: Final = 1 << POSITION_BITS
BY_HASH: Final = 0
"""Stands for a place: a shared object, which is found by its hash."""

DICTIONARY: Final = 32 * 1024
"""How many bytes at the end of an earlier record may be the zstd dictionary of a later one."""

GROUP: Final = 16
"""Records in a row that may be compressed with each other as dictionaries, but with no others."""

_POSITION: Final = MAX_NODES - 1
_KINDS: Final = {int(kind): kind for kind in Kind}
_CRC: Final = 4
_WRITE_ID: Final = 16
_FIRST_PARENT: Final = -1
_SCALARS: Final = frozenset({type(None), bool, int, float, str, bytes})


def place_of(sequence: int, position: int) -> Place:
    """The place of a node."""
    return sequence << POSITION_BITS | position


def sequence_of(place: Place) -> int:
    """The record that a place is in."""
    return place >> POSITION_BITS


def position_of(place: Place) -> int:
    """Where in its record a place is."""
    return place & _POSITION


def same_group(sequence: int, other: int) -> bool:
    """Whether two records are of the same group."""
    return (sequence - 1) // GROUP == (other - 1) // GROUP


class Row(NamedTuple):
    """A record as it stands in the tail of a log."""

    sequence: int
    dictionary: int | None
    """The record whose body is the dictionary of this one."""
    frame: bytes
    """With a crc32 in front."""


def seal(space: str, sequence: int, frame: bytes) -> bytes:
    """A frame with a crc32 in front, which covers its space and sequence number too."""
    return crc32(frame, crc32(f"{space} {sequence}".encode())).to_bytes(_CRC, "little") + frame


def unseal(space: str, sequence: int, frame: bytes) -> bytes:
    """A frame without its crc32; raises `FormatError` if it is not what was sealed."""
    if seal(space, sequence, frame[_CRC:]) != frame:
        raise FormatError("it does not match its checksum")
    return frame[_CRC:]


class Node(NamedTuple):
    """A node as it is read: its payload complete, its id computed from it."""

    id: ObjectId
    kind: Kind
    payload: bytes
    hints: bytes

    def object(self) -> Object:
        """The node as an `Object`, without its hints."""
        return Object(self.id, self.kind, self.payload)

    def places(self, sequence: int) -> dict[ObjectId, Place]:
        """Where the links of the node lead, if it is in a record of this number."""
        if not self.hints:
            return {}
        found = links(self.object())
        return dict(zip(found, read_hints(self.hints, sequence), strict=True))


class Piece(NamedTuple):
    """A node as it stands in a record."""

    kind: int
    payload: bytes
    hole: int
    hints: bytes

    def stored(self, scale: float) -> int:
        """Its part of what the nodes that it is compressed with take in the store."""
        return round(scale * (len(self.payload) + len(self.hints)))


def encode_body(
    operation: bytes,
    objects: Sequence[Object],
    links: Sequence[Sequence[ObjectId]],
    hints_to: Mapping[ObjectId, bytes],
) -> bytes:
    """Encode a body. `links` are those of each object, `hints_to` where they lead."""
    parts = [varint(len(operation)), operation, varint(len(objects)), b""]
    heads: list[bytes] = []
    before: ObjectId | None = None
    for (id, kind, payload), below in zip(objects, links, strict=True):
        hole, hints = 0, b""
        if below:
            hints = b"".join(map(hints_to.__getitem__, below))
            if before is not None and (at := payload.find(before)) >= 0:
                hole = at + 1
                payload = payload[:at] + payload[at + ID_SIZE :]
        heads.append(KIND_BYTES[kind] + varint(len(payload)) + varint(hole) + varint(len(hints)))
        parts += (payload, hints)
        before = id
    parts[3] = b"".join(heads)
    return b"".join(parts)


def own_hint(position: int) -> bytes:
    """The hint to a node of the same record."""
    return varint(1 + 2 * position)


@lru_cache(4096)
def hint(place: Place) -> bytes:
    """The hint to a node of an earlier record; a large node leads to the same ones each time."""
    if place == BY_HASH:
        return b"\0"
    position, sequence = place & _POSITION, place >> POSITION_BITS
    if position < 63 and sequence < 128:
        return bytes((2 + 2 * position, sequence))
    return varint(2 + 2 * position) + varint(sequence)


def read_hints(hints: bytes, sequence: int) -> list[Place]:
    """The places in the hints of a node of a record."""
    found: list[Place] = []
    at, end = 0, len(hints)
    while at < end:
        code, at = read_varint(hints, at)
        if code == 0:
            found.append(BY_HASH)
        elif code & 1:
            found.append(sequence << POSITION_BITS | code >> 1)
        else:
            there, at = read_varint(hints, at)
            found.append(there << POSITION_BITS | code // 2 - 1)
    return found


class Record:
    """A record that is read: its operation, and its nodes, of which each is made when asked for."""

    __slots__ = ("_header", "_nodes", "_stored", "pieces", "sequence")

    def __init__(
        self,
        sequence: int,
        header: bytes | Callable[[int], bytes],
        pieces: Sequence[Piece | None],
        stored: int | Callable[[], float] = 0,
    ) -> None:
        """`header` may be a function that finds it; `pieces` may be opened one by one.

        `stored` is how many bytes it takes in the store, or a function that gives its `scale`.
        """
        self.sequence, self._header, self.pieces = sequence, header, pieces
        self._stored = stored
        self._nodes: list[Node | None] = [None] * len(pieces)

    @property
    def header(self) -> bytes:
        """The operation, as it is stored."""
        header = self._header
        return header if isinstance(header, bytes) else header(self.sequence)

    @property
    def scale(self) -> float:
        """How many bytes the store takes for each byte of the nodes, compressed together."""
        if callable(self._stored):
            return self._stored()
        size = sum([len(one.payload) + len(one.hints) for one in self.pieces if one is not None])
        return self._stored / size if size else 0.0

    @classmethod
    def decode(cls, sequence: int, body: bytes, stored: int = 0) -> Record:
        """Read a body; raises `FormatError`."""
        length, at = read_varint(body, 0)
        header, at = body[at : at + length], at + length
        count, at = read_varint(body, at)
        if count > MAX_NODES or count > len(body):
            raise FormatError("a record promises more nodes than it has bytes")
        numbers, at = take_varints(body, at, 4 * count)
        pieces: list[Piece] = []
        four = iter(numbers)
        for kind, size, hole, width in zip(four, four, four, four, strict=True):
            middle = at + size
            pieces.append(Piece(kind, body[at:middle], hole, body[middle : middle + width]))
            at = middle + width
        if at != len(body):
            raise FormatError("a record has other bytes than it promises")
        return cls(sequence, header, pieces, stored)

    def __len__(self) -> int:
        return len(self.pieces)

    def node(self, position: int) -> Node | None:
        """A node, named by its hash; None if it was collected. Raises `FormatError`."""
        try:
            known = self._nodes[position]
        except IndexError:
            raise FormatError(f"record {self.sequence} has no node {position}") from None
        if known is not None:
            return known
        first = position
        while first and self._nodes[first - 1] is None:
            piece = self.pieces[first]
            if piece is None or not piece.hole:
                break
            first -= 1
        self._fill(first, [self.pieces[at] for at in range(first, position + 1)])
        return self._nodes[position]

    def nodes(self) -> list[Node | None]:
        """All nodes, by position; raises `FormatError`."""
        self._fill(0, self.pieces)
        return self._nodes

    def _fill(self, first: int, pieces: Iterable[Piece | None]) -> None:
        """Build the nodes of pieces; the first has no hole, or the node before it is built."""
        nodes = self._nodes
        before = nodes[first - 1] if first else None
        for at, piece in enumerate(pieces, first):
            if piece is not None and nodes[at] is None:
                kind, payload, hole, hints = piece
                if hole:
                    if before is None:
                        raise FormatError(f"record {self.sequence} leans on a node that is gone")
                    payload = payload[: hole - 1] + before.id + payload[hole - 1 :]
                known = _KINDS.get(kind)
                if known is None:
                    raise FormatError(f"record {self.sequence} holds a node of unknown kind {kind}")
                id = sha256(KIND_BYTES[kind] + payload).digest()
                nodes[at] = Node(id, known, payload, hints)
            before = nodes[at]


# Operations.


def encode_header(append: Append, links: Sequence[Sequence[ObjectId]]) -> bytes:
    """An operation as it stands in its record: ids of its own nodes by their positions.

    `links` are those of each node.
    """
    objects = append.objects
    listed: list[tuple[str, object, object]] = []
    for name, expected, target in append.moves:
        was: object = expected
        at: object = target
        for position in range(len(objects) - 1, -1, -1):
            one = objects[position]
            if one.id == target:
                at = position
                if one.kind == Kind.COMMIT and expected is not None:
                    below = links[position]
                    if len(below) > 1 and below[1] == expected:
                        was = _FIRST_PARENT
                break
        listed.append((name, was, at))
    write_id = append.write_id
    short: str | bytes = write_id
    if len(write_id) == 2 * _WRITE_ID:  # Most are 16 bytes in hexadecimal digits.
        try:
            half = bytes.fromhex(write_id)
            short = half if half.hex() == write_id else write_id
        except ValueError:
            pass
    return ormsgpack.packb([append.known_epoch, append.time, short, listed, append.metadata])


def decode_header(space: str, record: Record) -> Operation:
    """The operation of a record; raises `FormatError`."""
    try:
        epoch, time, write_id, listed, metadata = ormsgpack.unpackb(record.header)
        moves = tuple([_move(record, *one) for one in listed])
        if type(write_id) is bytes:
            write_id = write_id.hex()
        plain = _SCALARS.issuperset(map(type, metadata.values()))
        if not plain or (type(epoch), type(time), type(write_id)) != (int, int, str):
            raise TypeError("other fields")
    except (ValueError, TypeError, AttributeError) as error:
        raise FormatError(f"the operation of record {record.sequence} is malformed") from error
    return Operation(space, record.sequence, moves, write_id, time, epoch, metadata)


def moved_in(record: Record) -> list[tuple[str, int]]:
    """The refs that a record moved to nodes of its own, and where these are."""
    return [
        (name, target) for name, _, target in _unpacked(record.header)[3] if type(target) is int
    ]


def ids_in_header(header: bytes) -> list[ObjectId]:
    """The ids that stand in an operation: those of nodes of other records."""
    _, _, _, moves, metadata = _unpacked(header)
    found = [id for _, *ids in moves for id in ids if type(id) is bytes]
    return found + [one for one in metadata.values() if type(one) is bytes and len(one) == ID_SIZE]


def settled_header(record: Record, keep: Callable[[int], bool]) -> bytes:
    """An operation in which nodes that are not kept are named by their ids."""
    epoch, time, write_id, moves, metadata = _unpacked(record.header)
    for move in moves:
        _, expected, target = move
        if type(target) is int and not keep(target):
            node = record.node(target)
            if node is not None:
                if expected == _FIRST_PARENT:
                    move[1] = first_parent(node.payload)
                move[2] = node.id
    return ormsgpack.packb([epoch, time, write_id, moves, metadata])


def write_id_of(header: bytes) -> str:
    """The write id in a record's header."""
    found = _unpacked(header)[2]
    return found.hex() if type(found) is bytes else str(found)


def _unpacked(header: bytes) -> tuple[int, int, str | bytes, list[list[Any]], dict[str, Scalar]]:
    """The fields of an operation as they stand in its record; raises `FormatError`."""
    try:
        epoch, time, write_id, moves, metadata = ormsgpack.unpackb(header)
    except (ValueError, TypeError) as error:
        raise FormatError(f"the operation of a record is malformed: {error}") from None
    if (
        type(moves) is not list
        or type(metadata) is not dict
        or [one for one in moves if type(one) is not list or len(one) != 3]
    ):
        raise FormatError("the operation of a record has other fields")
    return epoch, time, write_id, moves, metadata


def _move(record: Record, name: object, expected: object, target: object) -> Move:
    node: Node | None = None
    if type(target) is int:
        node = record.node(target)
        if node is None:
            raise TypeError("a ref was moved to a node that is gone")
        target = node.id
    if expected == _FIRST_PARENT and node is not None:
        expected = first_parent(node.payload)
    if type(name) is not str or type(expected) not in _ID_TYPES or type(target) not in _ID_TYPES:
        raise TypeError("a move has other fields")
    return Move(name, expected, target)  # type: ignore[arg-type]
