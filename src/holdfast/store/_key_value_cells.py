"""What stands under which key of a key-value store, and how it is spelled."""

from __future__ import annotations

from hashlib import sha256
from typing import Any, NamedTuple

import ormsgpack

from holdfast.errors import FormatError
from holdfast.tree._objects import ObjectId

ROOT = "holdfast/"
HEADER = "holdfast/header"
EPOCH = "holdfast/epoch"
OBJECTS = "holdfast/object/"
SPACES = "holdfast/space/"
LOGS = "holdfast/log/"
REFS = "holdfast/refs/"

_SEAL = b"holdfast\x01"
_DIGEST = 16
_COLLECTION = 8
# Whether a cell is pending, and whether it is condemned.
_MARKS = {
    (False, False): b"A",
    (False, True): b"C",
    (True, False): b"P",
    (True, True): b"D",
}
_MEANING = {mark: marks for marks, mark in _MARKS.items()}

NONCE = 8
"""Bytes that tell one writer's pending frame from another's."""


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


class Cell(NamedTuple):
    """An object as it is stored."""

    frame: bytes
    collection: int | None = None
    """The collection that condemned it, if one did."""
    pending: bytes | None = None
    """What its writer proposed it with, as long as it is not confirmed."""


def encode_cell(cell: Cell) -> bytes:
    """Spell a cell."""
    marks = (cell.pending is not None, cell.collection is not None)
    parts = [_MARKS[marks], cell.pending or b""]
    if cell.collection is not None:
        parts.append(cell.collection.to_bytes(_COLLECTION, "big"))
    return b"".join([*parts, cell.frame])


def decode_cell(data: bytes) -> Cell | None:
    """Read a cell; None if it is none. Its frame is checked by who reads the object."""
    marks = _MEANING.get(data[:1])
    if marks is None:
        return None
    pending, condemned = marks
    middle = 1 + (NONCE if pending else 0)
    start = middle + (_COLLECTION if condemned else 0)
    if len(data) < start:
        return None
    return Cell(
        data[start:],
        int.from_bytes(data[middle:start], "big") if condemned else None,
        data[1:middle] if pending else None,
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


def damaged(key: str) -> FormatError:
    """What is said of a value that is not as Holdfast wrote it."""
    return FormatError(
        f"what the key-value store holds under {key!r} is not Holdfast's, or it is damaged. "
        "Restore it from a copy."
    )


def _digest(key: str, payload: bytes) -> bytes:
    return sha256(key.encode() + b"\0" + payload).digest()[:_DIGEST]
