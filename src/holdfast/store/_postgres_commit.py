"""A commit as the parameters of one statement, and what its answer says."""

from __future__ import annotations

from hashlib import sha256
from typing import Any, NamedTuple
from uuid import UUID
from zlib import crc32

from holdfast.errors import Corrupt, FormatError, LeaseLost, MissingObjects, RefMoved
from holdfast.store._decide import Batch, Recorded, Reframe, check_repeated, operation_of
from holdfast.store._frames import read_size
from holdfast.store._framing import Framed
from holdfast.store._records import Operation, decode_operation, encode_operation
from holdfast.tree._objects import ID_SIZE, ObjectId

_CHECK_SIZE = 4
_REPEATED, _LEASE_LOST, _REF_MOVED, _MISSING, _REFRAME = 1, 2, 3, 4, 5

TYPES = (
    "text uuid bytea bytea integer bytea[] bytea bytea[] boolean[] bytea[] bytea[] bytea[] "
    "text[] bytea[] bytea[] text[] bigint[]"
)
"""The types of what `parameters_of` gives."""


class Answer(NamedTuple):
    """What the function gives back."""

    status: int
    sequence: int
    epoch: int
    watched: bool
    place: int | None
    actual: ObjectId | None
    ids: list[ObjectId] | None
    digest: bytes | None
    record: bytes | None


def parameters_of(batch: Batch) -> list[Any]:
    """A batch as parameters, in the order that the function takes them."""
    frames = sorted(batch.frames)
    ids = [one.id for one in frames]
    stored = set(ids)
    return [
        batch.space,
        write_key(batch.space, batch.write_id),
        batch.digest,
        _record_of(batch),
        batch.epoch,
        ids,
        bytes([one.depth for one in frames]),
        [one.base for one in frames],
        [one.base in stored for one in frames],
        [piece_of(one) for one in frames],
        list(batch.needs - stored),
        list(batch.targets - stored),
        [move.name for move in batch.moves],
        [move.expected for move in batch.moves],
        [move.target for move in batch.moves],
        [fence.name for fence in batch.fences],
        [fence.token for fence in batch.fences],
    ]


def operation_from(batch: Batch, answer: Answer) -> Operation:
    """The operation that a batch became, or was before; raises what `decide` would raise."""
    match answer.status:
        case 0:
            return operation_of(batch, answer.sequence, answer.epoch)
        case 1:
            found = read_operation(batch.space, answer.sequence, answer.epoch, answer.record)
            check_repeated(batch, Recorded(answer.digest or b"", found))
            return found
        case 2:
            fence = batch.fences[(answer.place or 1) - 1]
            raise LeaseLost(
                f"lease {fence.name!r} of {batch.space!r} is no longer held with token "
                f"{fence.token}. Nothing was written; acquire the lease again."
            )
        case 3:
            move = batch.moves[(answer.place or 1) - 1]
            raise RefMoved(move.name, move.expected, answer.actual)
        case 4:
            raise MissingObjects(sorted(set(answer.ids or ())))
        case 5:
            raise Reframe(answer.ids or ())
    raise FormatError(f"the function for commits answered {answer.status}, which says nothing")


def write_key(space: str, write_id: str) -> UUID:
    """What a write is found by: enough of a hash that no two share it."""
    return UUID(bytes=sha256(f"{space} {write_id}".encode()).digest()[:16])


def piece_of(framed: Framed) -> bytes:
    """A frame without the id of its base, which has a column of its own."""
    if framed.base is None:
        return framed.frame
    start = read_size(framed.frame)[1]
    return framed.frame[:start] + framed.frame[start + ID_SIZE :]


def frame_of(piece: bytes, base: ObjectId | None) -> bytes:
    """A frame from its row; what cannot be one is left as it is."""
    if base is None:
        return piece
    try:
        start = read_size(piece)[1]
    except FormatError:
        return piece
    return piece[:start] + base + piece[start:]


def _record_of(batch: Batch) -> bytes:
    # Sequence and epoch are known to the server only, and have columns of their own.
    record = encode_operation(operation_of(batch, 0, 0))
    return record + _checksum(record)


def read_operation(space: str, sequence: int, epoch: int, record: bytes | None) -> Operation:
    """An operation from its row."""
    if record is None or record[-_CHECK_SIZE:] != _checksum(record[:-_CHECK_SIZE]):
        raise Corrupt(
            f"operation {sequence} of {space!r} is damaged. Restore the store from a copy; other "
            "spaces are not affected."
        )
    found = decode_operation(space, record[:-_CHECK_SIZE])
    return Operation(
        space, sequence, found.moves, found.write_id, found.time, epoch, found.metadata
    )


def _checksum(record: bytes) -> bytes:
    return crc32(record).to_bytes(_CHECK_SIZE, "little")
