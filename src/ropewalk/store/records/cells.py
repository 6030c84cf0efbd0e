"""Values by key, on which a store of records is built.

A cell changes, by compare-and-set; a part is written once, under a name of its own, and named
by a cell. What each holds begins with a checksum over its key and its bytes.
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
"""The cell that says where shared objects are."""
SPACES: Final = "ropewalk/space/"
"""The cells of spaces."""
KNOWN: Final = "ropewalk/known/"
"""Cells that say that a space has operations, so that one that is gone is missed."""
PARTS: Final = "ropewalk/part/"
"""The parts of spaces, each in a folder of its space."""
PACKS: Final = "ropewalk/pack/"
"""Shared objects, and where they are."""

LARGEST: Final = 4 << 20
"""Indexes of more bytes are not merged."""

_MAGIC: Final = b"ropewalk\x02"
_OLDER: Final = b"ropewalk\x01"
_CRC: Final = 4
_START: Final = len(_MAGIC) + _CRC


class Cells(Protocol):
    """Values that change, each on its own."""

    def get(self, key: str) -> bytes | None:
        """The value of a key."""

    def get_many(self, keys: Sequence[str]) -> dict[str, bytes]:
        """The values of several keys, without those that are absent."""

    def keys(self, prefix: str) -> list[str]:
        """The keys that begin so, each once."""

    def swap(self, key: str, expected: bytes | None, value: bytes) -> bool:
        """Compare and set: None is absent. False if the key has another value."""


class Parts(Protocol):
    """Values that never change."""

    def get_many(self, keys: Sequence[str]) -> dict[str, bytes]:
        """The values of several keys, without those that are absent."""

    def pieces(self, key: str, places: Sequence[tuple[int, int]]) -> list[bytes] | None:
        """Pieces of a value, by offset and length; None if there is none."""

    def keys(self, prefix: str) -> list[str]:
        """The keys that begin so, each once."""

    def set_many(self, values: Mapping[str, bytes]) -> None:
        """Set several keys."""

    def remove(self, keys: Sequence[str]) -> None:
        """Remove keys; those that are not there are passed over."""


class Extent(NamedTuple):
    """A part that says where things are, and about how many bytes it has."""

    name: str
    size: int


class Gone(Exception):
    """A part is not there. The reader reads the cell again that named it before it says so."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def new_name() -> str:
    """A name that no other part has."""
    return urandom(8).hex()


def merged(indexes: Sequence[Extent], size: int) -> int:
    """How many of the last indexes are put together with a new one of so many bytes.

    So there are few, and each row is written again only a few times.
    """
    count = 0
    for one in reversed(indexes):
        if one.size > 2 * size or one.size + size > LARGEST:
            break
        size += one.size
        count += 1
    return count


def read_part(parts: Parts, key: str) -> bytes:
    """A part; raises `Gone`."""
    found = parts.get_many([key]).get(key)
    if found is None:
        raise Gone(key)
    return found


def remove_parts(parts: Parts, keys: Iterable[str]) -> None:
    """Remove what nothing names. What cannot be removed is in nobody's way, and goes later."""
    doomed = sorted(keys)
    if doomed:
        with suppress(Unavailable, NotAllowed, Full):
            parts.remove(doomed)


@contextmanager
def reading(key: str) -> Iterator[None]:
    """Raise `FormatError` if what is under a key has another form than ours."""
    try:
        yield
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        if isinstance(error, FormatError):
            raise
        raise damaged(key) from error


def seal(key: str, content: Any) -> bytes:
    """Spell what stands under a key so that damage is noticed, and what is another key's, too."""
    payload = ormsgpack.packb(content)
    return b"%s%s%s" % (_MAGIC, _checksum(key, payload), payload)


def unseal(key: str, data: bytes) -> Any:
    """Read it; `FormatError` if it is not what was stored under this key."""
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
    """What is said of a value that is not what was stored."""
    return FormatError(
        f"what is stored under {key!r} is damaged, or is not Ropewalk's. Restore it from a copy."
    )


def lost(key: str) -> Corrupt:
    """What is said of a value that is gone."""
    return Corrupt(
        f"{key!r} is gone, although it is needed: operations that were acknowledged cannot be "
        "read. Restore it from a copy; other spaces are not affected."
    )
