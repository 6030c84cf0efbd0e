"""Pages of a list, and cursors that say where the next one begins."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, TypeVar

import ormsgpack

from ropewalk.errors import InvalidInput

T = TypeVar("T")

_MOST: Final = 1 << 62
"""No list is longer, and counting further is not possible everywhere."""


class Page(list[T]):
    """A list with a cursor: `cursor` begins the next page; None after the last one."""

    __slots__ = ("cursor",)

    def __init__(self, items: Iterable[T] = (), cursor: str | None = None) -> None:
        super().__init__(items)
        self.cursor = cursor


class Window(NamedTuple):
    """Which part of a list is wanted."""

    offset: int
    limit: int | None

    @classmethod
    def of(cls, offset: int | None, limit: int | None, cursor: str | None) -> Window:
        """What a caller asked for; raises `InvalidInput`."""
        if cursor is not None and offset:
            raise InvalidInput("a cursor says where a page begins: give it or an offset, not both")
        return cls(_count(offset, "offset") or 0, _count(limit, "limit"))


def _count(number: int | None, what: str) -> int | None:
    if number is None:
        return None
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise InvalidInput(f"{what} is a whole number from 0 on, not {number!r:.80}")
    return min(number, _MOST)


def make_cursor(*parts: Any) -> str:
    """A text that stands for a place in a list."""
    return base64.urlsafe_b64encode(ormsgpack.packb(parts)).decode("ascii").rstrip("=")


def read_cursor(cursor: str, *kinds: type) -> list[Any]:
    """The parts of a cursor; raises `InvalidInput` for what is none of this list's."""
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        parts = ormsgpack.unpackb(base64.b64decode(padded, b"-_", validate=True))
    except (AttributeError, UnicodeError, binascii.Error, ormsgpack.MsgpackDecodeError):
        parts = None
    if (
        not isinstance(parts, list)
        or len(parts) != len(kinds)
        or any(type(part) is not kind for part, kind in zip(parts, kinds, strict=True))
    ):
        raise InvalidInput(
            f"{cursor!r:.80} is no cursor of this list: take the one that the page before has"
        )
    return parts
