"""What stands under which key of a key-value store, and how it is spelled."""

from __future__ import annotations

import os
from hashlib import sha256
from typing import Any, NamedTuple

import ormsgpack

from ropewalk.errors import FormatError
from ropewalk.tree.objects import ObjectId

ROOT = "ropewalk/"
HEADER = "ropewalk/header"
EPOCH = "ropewalk/epoch"
OBJECTS = "ropewalk/object/"
SPACES = "ropewalk/space/"
LOGS = "ropewalk/log/"
REFS = "ropewalk/refs/"

_SEAL = b"ropewalk\x01"
_DIGEST = 16
_COLLECTION = 8
_EPOCH = 6
_NONCE = 8
_BIRTH = _EPOCH + _NONCE


# Whether a cell is new, and whether it is condemned.
_MARKS = {
    (False, False): b"A",
    (False, True): b"C",
    (True, False): b"N",
    (True, True): b"M",
}
_MEANING = {mark: marks for marks, mark in _MARKS.items()}

NEW = _MARKS[True, False]
"""What a cell begins with that is alive, and not settled."""


def object_key(id: ObjectId) -> str:
    """Where an object is."""
    return OBJECTS + id.hex()


def space_key(space: str) -> str:
    """Where the record of a space is."""
    return SPACES + space


def page_key(space: str, page: int) -> str:
    """Where a full page of a space's log is; the first is 0."""
    return f"{LOGS}{space}/{page:012d}"


def refs_key(space: str, sequence: int) -> str:
    """Where the refs of a space are, as an operation left them."""
    return f"{REFS}{space}/{sequence:012d}"


class Birth(NamedTuple):
    """When a cell was written, and what tells it from every other one that was."""

    epoch: int
    nonce: bytes


def born(epoch: int) -> Birth:
    """The birth of what one commit writes now."""
    return Birth(epoch, os.urandom(_NONCE))


class Cell(NamedTuple):
    """An object as it is stored."""

    frame: bytes
    collection: int | None = None
    """The collection that condemned it, if one did."""
    birth: Birth | None = None
    """None if it is settled: then a collection has seen it in its epoch, or found it reached."""

    def is_doubtful(self, epoch: int) -> bool:
        """Whether the commit that wrote it may have failed before this epoch."""
        return self.birth is not None and self.birth.epoch < epoch


def encode_cell(cell: Cell) -> bytes:
    """Spell a cell."""
    parts = [_MARKS[cell.birth is not None, cell.collection is not None]]
    if cell.birth is not None:
        parts += [cell.birth.epoch.to_bytes(_EPOCH, "big"), cell.birth.nonce]
    if cell.collection is not None:
        parts.append(cell.collection.to_bytes(_COLLECTION, "big"))
    return b"".join([*parts, cell.frame])


def decode_cell(data: bytes) -> Cell | None:
    """Read a cell; None if it is none. Its frame is checked by who reads the object."""
    marks = _MEANING.get(data[:1])
    if marks is None:
        return None
    new, condemned = marks
    middle = 1 + (_BIRTH if new else 0)
    start = middle + (_COLLECTION if condemned else 0)
    if len(data) < start:
        return None
    birth = Birth(int.from_bytes(data[1 : 1 + _EPOCH], "big"), data[1 + _EPOCH : middle])
    return Cell(
        data[start:],
        int.from_bytes(data[middle:start], "big") if condemned else None,
        birth if new else None,
    )


def seal(key: str, content: Any) -> bytes:
    """Spell a record so that damage is noticed, and another key's record too."""
    payload = ormsgpack.packb(content)
    return _SEAL + _digest(key, payload) + payload


def unseal(key: str, data: bytes) -> Any:
    """Read a record; `FormatError` if it is not what was stored under this key."""
    start = len(_SEAL) + _DIGEST
    payload = data[start:]
    if data[:start] != _SEAL + _digest(key, payload):
        raise damaged(key)
    try:
        return ormsgpack.unpackb(payload)
    except ValueError as error:
        raise damaged(key) from error


def read_epoch(data: bytes | None) -> int:
    """Read the store's epoch."""
    epoch = None if data is None else unseal(EPOCH, data)
    if not isinstance(epoch, int):
        raise damaged(EPOCH)
    return epoch


def damaged(key: str) -> FormatError:
    """What is said of a value that is not as Ropewalk wrote it."""
    return FormatError(
        f"what the key-value store holds under {key!r} is not Ropewalk's, or it is damaged. "
        "Restore it from a copy."
    )


def _digest(key: str, payload: bytes) -> bytes:
    return sha256(key.encode() + b"\0" + payload).digest()[:_DIGEST]
