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
_ALIVE = b"A"
_CONDEMNED = b"C"
_COLLECTION = 8


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
    """An object as it is stored: its frame, and which collection condemned it."""

    frame: bytes
    collection: int | None


def encode_cell(cell: Cell) -> bytes:
    """Spell a cell."""
    if cell.collection is None:
        return _ALIVE + cell.frame
    return _CONDEMNED + cell.collection.to_bytes(_COLLECTION, "big") + cell.frame


def decode_cell(data: bytes) -> Cell | None:
    """Read a cell; None if it is none. Its frame is checked by who reads the object."""
    mark = data[:1]
    if mark == _ALIVE:
        return Cell(data[1:], None)
    if mark == _CONDEMNED and len(data) > _COLLECTION:
        start = 1 + _COLLECTION
        return Cell(data[start:], int.from_bytes(data[1:start], "big"))
    return None


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
