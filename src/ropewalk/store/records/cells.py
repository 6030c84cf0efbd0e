"""The key-value interface that stores of records are built on.

A cell changes by compare-and-set. A part is written once, under a unique name, and referenced by a
cell. The content of each begins with a checksum over its key and its bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from os import urandom
from typing import Any, Final, NamedTuple, Protocol
from zlib import crc32

import ormsgpack

from ropewalk.errors import Corrupt, FormatError, Full, NotAllowed, Unavailable

ROOT: Final = "ropewalk/"
HEADER: Final = "ropewalk/header"
SHARED: Final = "ropewalk/shared"
"""The cell that locates shared objects."""
SPACES: Final = "ropewalk/space/"
"""The cells of spaces."""
KNOWN: Final = "ropewalk/known/"
"""Cells that mark spaces with operations, so that the loss of a space is detected."""
PARTS: Final = "ropewalk/part/"
"""The parts of spaces, in a folder per space."""
PACKS: Final = "ropewalk/pack/"
"""Shared objects, and their indexes."""

LARGEST: Final = 4 << 20
"""Larger indexes are not merged."""

_MAGIC: Final = b"ropewalk\x02"
_OLDER: Final = b"ropewalk\x01"
_CRC: Final = 4
_START: Final = len(_MAGIC) + _CRC


class Cells(Protocol):
    """Mutable values, each changed independently."""

    def get(self, key: str) -> bytes | None:
        """The value of a key."""

    def get_many(self, keys: Sequence[str]) -> dict[str, bytes]:
        """The values of several keys, without missing ones."""

    def keys(self, prefix: str) -> list[str]:
        """The keys with a prefix, each once."""

    def swap(self, key: str, expected: bytes | None, value: bytes) -> bool:
        """Compare and set; None stands for an absent key. False if the key has another value."""


class Parts(Protocol):
    """Immutable values."""

    def get_many(self, keys: Sequence[str]) -> dict[str, bytes]:
        """The values of several keys, without missing ones."""

    def pieces(self, key: str, places: Sequence[tuple[int, int]]) -> list[bytes] | None:
        """Ranges of a value, by offset and length; None if it is absent."""

    def keys(self, prefix: str) -> list[str]:
        """The keys with a prefix, each once."""

    def set_many(self, values: Mapping[str, bytes]) -> None:
        """Set several keys."""

    def remove(self, keys: Sequence[str]) -> None:
        """Remove keys; missing ones are ignored."""


class Extent(NamedTuple):
    """A part that is an index, and its approximate size in bytes."""

    name: str
    size: int


class Gone(Exception):
    """A part is missing. The reader reads the cell that named it again before reporting a loss."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def new_name() -> str:
    """A unique name for a part."""
    return urandom(8).hex()


def merged(indexes: Sequence[Extent], size: int) -> int:
    """How many of the last indexes to merge with a new one of this size.

    Keeps the number of indexes small while rewriting each row only a few times.
    """
    count = 0
    for one in reversed(indexes):
        if one.size > 2 * size or one.size + size > LARGEST:
            break
        size += one.size
        count += 1
    return count


def read_part(parts: Parts, key: str) -> bytes:
    """Read a part; raises `Gone`."""
    found = parts.get_many([key]).get(key)
    if found is None:
        raise Gone(key)
    return found


def remove_parts(parts: Parts, keys: Iterable[str]) -> None:
    """Remove unreferenced parts. One that cannot be removed is harmless, and removed later."""
    doomed = sorted(keys)
    if doomed:
        with suppress(Unavailable, NotAllowed, Full):
            parts.remove(doomed)


@contextmanager
def reading(key: str) -> Iterator[None]:
    """Raise `FormatError` if the content of a key cannot be decoded."""
    try:
        yield
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        if isinstance(error, FormatError):
            raise
        raise damaged(key) from error


def seal(key: str, content: Any) -> bytes:
    """Encode a value with a checksum that also covers its key."""
    payload = ormsgpack.packb(content)
    return b"%s%s%s" % (_MAGIC, _checksum(key, payload), payload)


def unseal(key: str, data: bytes) -> Any:
    """Decode a value; `FormatError` if it is not what was stored under this key."""
    payload = data[_START:]
    if data[:_START] != _MAGIC + _checksum(key, payload):
        raise damaged(key)
    with reading(key):
        return ormsgpack.unpackb(payload)


def is_older(data: bytes) -> bool:
    """Whether this was written before the first release."""
    return data.startswith(_OLDER)


def _checksum(key: str, payload: bytes) -> bytes:
    return crc32(payload, crc32(key.encode())).to_bytes(_CRC, "big")


def damaged(key: str) -> FormatError:
    """The error for a damaged value."""
    return FormatError(
        f"what is stored under {key!r} is damaged, or is not Ropewalk's. Restore it from a copy."
    )


def lost(key: str) -> Corrupt:
    """The error for a missing value."""
    return Corrupt(
        f"{key!r} is gone, although it is needed: operations that were acknowledged cannot be "
        "read. Restore it from a copy; other spaces are not affected."
    )
