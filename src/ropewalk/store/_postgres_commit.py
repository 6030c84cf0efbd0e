"""A commit as the parameters of one statement, and what its answer says."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Any, NamedTuple
from uuid import UUID
from zlib import crc32

from ropewalk.errors import Corrupt, FormatError, MissingObjects, RefMoved
from ropewalk.store._decide import (
    Batch,
    Recorded,
    Reframe,
    check_repeated,
    fenced_off,
    operation_of,
)
from ropewalk.store._frames import read_size
from ropewalk.store._framing import Framed
from ropewalk.store._postgres_arrays import KEY_SIZE, byteas, keys, texts
from ropewalk.store._records import Operation, decode_operation, encode_operation
from ropewalk.tree.objects import ID_SIZE, ObjectId

_CHECK_SIZE = 4
_TAKEN = 6  # What the function answers if a write of another space has the number.

NUMBER_SIZE = 8
"""Bytes of a hash that are kept as a number."""

TYPES = (
    "text bigint bigint bytea integer uuid[] bytea bytea uuid[] bytea bytea[] uuid[] uuid[] "
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
    keys: list[UUID] | None
    digest: int | None
    record: bytes | None

    @classmethod
    def made(cls, sequence: int, epoch: int | None, watched: bool) -> Answer:
        """What is said of a commit that was made with others."""
        assert epoch is not None
        return cls(0, sequence, epoch, watched, None, None, None, None, None)


def parameters_of(batch: Batch, attempt: int = 0) -> list[Any]:
    """A batch as parameters, in the order that the function takes them.

    An `attempt` more is made when another write has the number of this one.
    """
    frames = sorted(batch.frames)
    ids = [one.id for one in frames]
    stored = set(ids)
    return [
        batch.space,
        _number(write_key(batch, attempt)),
        _number(batch.digest),
        record_of(batch),
        batch.epoch,
        keys(ids),
        b"".join([id[KEY_SIZE:] for id in ids]),
        bytes([one.depth for one in frames]),
        keys([one.base for one in frames]),
        bytes([one.base in stored for one in frames]),
        byteas([piece_of(one) for one in frames]),
        keys(batch.needs - stored),
        keys(batch.targets - stored),
        texts([move.name for move in batch.moves]),
        byteas([move.expected for move in batch.moves]),
        byteas([move.target for move in batch.moves]),
        texts([fence.name for fence in batch.fences]),
        [fence.token for fence in batch.fences],
    ]


def operation_from(batch: Batch, answer: Answer) -> Operation:
    """The operation that a batch became, or was before; raises what `decide` would raise."""
    match answer.status:
        case 0:
            return operation_of(batch, answer.sequence, answer.epoch)
        case 1:
            found = read_operation(batch.space, answer.sequence, answer.epoch, answer.record)
            same = answer.digest == _number(batch.digest)
            check_repeated(batch, Recorded(batch.digest if same else b"", found))
            return found
        case 2:
            raise fenced_off(batch.space, batch.fences[(answer.place or 1) - 1])
        case 3:
            move = batch.moves[(answer.place or 1) - 1]
            raise RefMoved(move.name, move.expected, answer.actual)
        case 4:
            raise MissingObjects(sorted(_ids(answer, batch.needs | batch.targets)))
        case 5:
            raise Reframe(_ids(answer, [one.id for one in batch.frames]))
    raise FormatError(f"the function for commits answered {answer.status}, which says nothing")


def write_key(batch: Batch, attempt: int = 0) -> bytes:
    """The number that a write is found by. Hardly ever do two writes share one."""
    more = f" {attempt}" if attempt else ""
    return sha256(f"{batch.space} {batch.write_id}{more}".encode()).digest()[:NUMBER_SIZE]


def is_taken(batch: Batch, answer: Answer) -> bool:
    """Whether another write has the number of this one; nothing was done then."""
    if answer.status != 1:
        return answer.status == _TAKEN
    found = read_operation(batch.space, answer.sequence, answer.epoch, answer.record)
    return found.write_id != batch.write_id


def piece_of(framed: Framed) -> bytes:
    """A frame without the id of its base, which is in a row of its own."""
    if framed.base is None:
        return framed.frame
    start = read_size(framed.frame)[1]
    return framed.frame[:start] + framed.frame[start + ID_SIZE :]


def frame_of(piece: bytes, base: ObjectId | None) -> bytes:
    """A frame from its row and the id of its base; what cannot be one is left as it is."""
    if base is None:
        return piece
    try:
        start = read_size(piece)[1]
    except FormatError:
        return piece
    return piece[:start] + base + piece[start:]


def base_of(key: UUID | None, rest: bytes | None) -> ObjectId | None:
    """The id of a base. One that is gone has none, and gets one that nothing else has."""
    return None if key is None else key.bytes + (rest or bytes(ID_SIZE - KEY_SIZE))


def _ids(answer: Answer, asked: Iterable[ObjectId]) -> set[ObjectId]:
    found = {key.bytes for key in answer.keys or ()}
    return {id for id in asked if id[:KEY_SIZE] in found}


def _number(digest: bytes) -> int:
    return int.from_bytes(digest[:NUMBER_SIZE], "big", signed=True)


def record_of(batch: Batch) -> bytes:
    """A batch as the record of its operation."""
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
