"""Objects: immutable bytes named by their hash."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from hashlib import sha256
from typing import NamedTuple, TypeAlias

from ropewalk.errors import InvalidInput

ObjectId: TypeAlias = bytes
"""The SHA-256 of kind byte and payload, 32 bytes."""

ID_SIZE = 32


class Kind(IntEnum):
    """What an object is; its byte is hashed with the payload."""

    VALUE = 1
    """A small value, whole."""
    ROOT = 2
    """The top of a container that is too large for its parent."""
    ITEMS = 3
    """A run of a sequence's items."""
    ITEMS_INDEX = 4
    """A run of sequence nodes with their counts."""
    PAIRS = 5
    """A run of a map's keys and values."""
    PAIRS_INDEX = 6
    """A run of map nodes with their first keys and counts."""
    CHUNK = 7
    """A run of bytes of a large string or of large bytes."""
    CHUNKS_INDEX = 8
    """A run of chunks with their sizes."""
    COMMIT = 16
    """A version: the root of a value, its parents, and what is known about the step."""


KIND_BYTES = [bytes([kind]) for kind in range(max(Kind) + 1)]
"""What stands before the payload where an object is hashed, by kind."""


class Object(NamedTuple):
    """Immutable bytes with their name.

    `base` is a hint for storage only: an object that this one resembles, usually
    the version before it.
    """

    id: ObjectId
    kind: Kind
    payload: bytes
    base: ObjectId | None = None


Reader: TypeAlias = Callable[[Sequence[ObjectId]], Sequence[Object]]
"""Fetches objects by id, in the order asked for; raises `MissingObjects`."""


def object_id(kind: Kind, payload: bytes) -> ObjectId:
    """The name of an object."""
    return sha256(KIND_BYTES[kind] + payload).digest()


def make_object(kind: Kind, payload: bytes, base: ObjectId | None = None) -> Object:
    """Name a payload."""
    if type(kind) is not Kind:
        raise InvalidInput(f"{kind!r} is not a kind of object")
    return Object(object_id(kind, payload), kind, payload, base)
