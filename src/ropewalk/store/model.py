"""What a store keeps beside objects, and how it is spelled in bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import ormsgpack

from ropewalk.errors import FormatError, InvalidInput, NewerFormat
from ropewalk.tree.objects import ID_SIZE, Kind, ObjectId

Scalar: TypeAlias = None | bool | int | float | str | bytes
"""What an operation's metadata may hold."""

Durability: TypeAlias = Literal["full", "relaxed", "none"]
"""`full` survives power loss; `relaxed` is consistent but may lose the last moments;
`none` ends with the process."""

FORMAT_VERSION = 2
ALGORITHM = "sha256"
MAX_METADATA_BYTES = 64 * 1024
MAX_WRITE_ID = 128
REMEMBERED_WRITES = 256
"""A store recognises at least this many of a space's latest write ids."""

MIGRATE = "migrate"
"""The key, in an operation's metadata, by which migrations know their own."""
UNDOES = "undoes"
"""The key for the number of another operation of the space, which history takes back."""

KEY = "key"
"""The key for what `Store.find` looks an operation up by."""
STEP = "step"
"""The key for the id of a commit that an operation brought and that no ref moved to."""
MAX_KEY = 16

SCALARS = (type(None), bool, int, float, str, bytes)
_SHORT = 16
_OPERATION = (
    [int, int, int, str, list, dict],
    [int, int, int, bytes, list, dict],
)
_IDS = (bytes, type(None))


class Ref(NamedTuple):
    """A name for a commit, and the operation that last moved it."""

    name: str
    target: ObjectId
    sequence: int


class Move(NamedTuple):
    """One compare-and-swap: `name` goes from `expected` to `target`.

    `expected=None` says that the ref must not exist, `target=None` removes it.
    """

    name: str
    expected: ObjectId | None
    target: ObjectId | None


class View(NamedTuple):
    """A space as it was at one moment."""

    sequence: int
    """The number of its last operation; 0 before the first."""
    epoch: int
    refs: tuple[Ref, ...]


class Stored(NamedTuple):
    """What `scan` says about one object."""

    id: ObjectId
    kind: Kind
    length: int
    """Bytes of its payload."""
    stored: int
    """Bytes of its frame."""


class LeaseRecord(NamedTuple):
    """A lease as an engine keeps it."""

    name: str
    holder: str
    token: int
    beat: int
    """Counts renewals, so that a watcher sees a living holder."""
    duration: float


class Operation(NamedTuple):
    """What one commit did to its space. Sequence numbers begin at 1 and have no gaps."""

    space: str
    sequence: int
    moves: tuple[Move, ...]
    write_id: str
    time: int
    """Microseconds since 1970. Only for people: order comes from `sequence`."""
    epoch: int
    """The space's epoch at that moment; hand it to the next `commit`."""
    metadata: Mapping[str, Scalar]

    @property
    def arrived(self) -> bool:
        """Whether it put refs where they were in a store that they were migrated from.

        Nobody did that, so there is nothing to undo; what is before it was not replayed.
        """
        return self.metadata.get(MIGRATE) == "refs"


@dataclass(frozen=True, slots=True)
class Fence:
    """The right to write: a lease's name and the token it was granted with.

    Token 0 is the right of who holds nothing: nobody may hold the lease.
    """

    name: str
    token: int


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease that this holder was granted.

    `deadline` is on the clock of the store object that granted it, counted from
    before the request, so the holder always stops first.
    """

    space: str
    name: str
    holder: str
    token: int
    duration: float
    deadline: float

    @property
    def fence(self) -> Fence:
        """What `commit` takes to write under this lease."""
        return Fence(self.name, self.token)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What differs between engines and is not a promise of the contract."""

    persists: bool
    """What was written is there when the store is opened again."""
    shared: bool
    """Several processes may use it at once."""
    wakes: bool
    """`watch` is told of an operation; otherwise it looks at intervals."""


@dataclass(frozen=True, slots=True)
class Header:
    """What stands at the front of every store."""

    store_id: bytes
    format: int = FORMAT_VERSION
    algorithm: str = ALGORITHM


def encode_header(header: Header) -> bytes:
    """Spell a header."""
    return ormsgpack.packb(["ropewalk", header.format, header.algorithm, header.store_id])


def decode_header(data: bytes) -> Header:
    """Read a header; `NewerFormat` if this version cannot read the store behind it."""
    match _unpack(data, "the store's header"):
        case ["ropewalk", int(version), *_] if version > FORMAT_VERSION:
            raise NewerFormat(
                f"the store has format {version}; this version reads up to {FORMAT_VERSION}. "
                "Install a newer Ropewalk."
            )
        case ["ropewalk", int(version), str(algorithm), bytes(store_id)] if version >= 1:
            if algorithm != ALGORITHM:
                raise NewerFormat(f"the store names objects by {algorithm!r}, not {ALGORITHM!r}")
            return Header(store_id, version, algorithm)
    raise FormatError("the store's header is not Ropewalk's")


def encode_operation(operation: Operation) -> bytes:
    """Spell an operation, without its space."""
    moves = [list(move) for move in operation.moves]
    return ormsgpack.packb(
        [
            operation.sequence,
            operation.epoch,
            operation.time,
            _shortened(operation.write_id),
            moves,
            dict(operation.metadata),
        ]
    )


def decode_operation(space: str, data: bytes) -> Operation:
    """Read an operation of a space."""
    # Without a `match`, which takes three times as long: logs are long.
    record = _unpack(data, "an operation")
    if type(record) is not list or [type(part) for part in record] not in _OPERATION:
        raise FormatError("an operation's record is not Ropewalk's")
    sequence, epoch, time, write_id, moves, metadata = record
    if type(write_id) is bytes:
        if len(write_id) != _SHORT:
            raise FormatError("an operation's write id is not Ropewalk's")
        write_id = write_id.hex()
    decoded = tuple([_decode_move(move) for move in moves])
    for value in metadata.values():
        if type(value) not in SCALARS:
            raise FormatError("an operation's metadata holds more than plain values")
    return Operation(space, sequence, decoded, write_id, time, epoch, metadata)


def _shortened(write_id: str) -> str | bytes:
    """Most write ids are 16 bytes in hexadecimal digits: half of that is enough."""
    if len(write_id) != 2 * _SHORT:
        return write_id
    try:
        short = bytes.fromhex(write_id)
    except ValueError:
        return write_id
    return short if short.hex() == write_id else write_id


def check_ids(ids: Iterable[ObjectId], what: str) -> list[ObjectId]:
    """The ids as a list; `InvalidInput` if one is none."""
    listed = list(ids)
    # A commit to a large value names hundreds, so the usual case takes no loop.
    if set(map(type, listed)) <= {bytes} and set(map(len, listed)) <= {ID_SIZE}:
        return listed
    for one in listed:
        if type(one) is not bytes or len(one) != ID_SIZE:
            hint = "; bytes.fromhex() reads one that was shown" if isinstance(one, str) else ""
            raise InvalidInput(
                f"{what} must be a list of object ids of {ID_SIZE} bytes, not {one!r:.80}{hint}"
            )
    return listed


def _decode_move(move: object) -> Move:
    if type(move) is list and len(move) == 3:
        name, expected, target = move
        if type(name) is str and type(expected) in _IDS and type(target) in _IDS:
            return Move(name, expected, target)
    raise FormatError("a ref move's record is not Ropewalk's")


def _unpack(data: bytes, what: str) -> Any:
    try:
        return ormsgpack.unpackb(data)
    except ValueError as error:
        raise FormatError(f"{what} cannot be read: {error}") from None
