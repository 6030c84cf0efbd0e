"""Values as an event keeps them: plain, small, and never what cannot be stored.

An event is read by programs that know none of the classes that were at work, and it is
written at every step. So it holds a copy of plain values, and a description of all else:
what has a class of its own, what is large, what is nested deeply.
"""

from __future__ import annotations

from collections.abc import Iterable, Sized
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import PurePath
from typing import Any, Final
from uuid import UUID

from ropewalk.codec import Codec, Registry
from ropewalk.codec.classes import default_name
from ropewalk.errors import NotStorable

MOST_CHARACTERS: Final = 16_000
"""About how much of one value an event keeps."""
_MOST_DEPTH: Final = 16
_LONGEST_ATOM: Final = 4_000
_LONGEST_DESCRIPTION: Final = 200
_LONGEST_SAMPLE: Final = 1_000
_MOST_BITS: Final = 14_000
_DESCRIBED: Final = "$described"
_AS_IT_IS: Final = "$dict"

_SMALL = (type(None), bool, float, complex)
_ATOMS = (bytes, bytearray, date, datetime, time, timedelta, Decimal, UUID)
_codec = Codec(Registry())


@dataclass(frozen=True, slots=True)
class Described:
    """Stands in an event for a value that was not kept: what it was, in short."""

    type: str
    """The name of its class."""
    text: str
    """The beginning of how it shows itself."""

    def __repr__(self) -> str:
        return f"<{self.type}: {self.text}>"


class _Hidden:
    def __repr__(self) -> str:
        return "hidden"


HIDDEN: Final = _Hidden()
"""Stands for an argument that an event does not show."""


def to_plain(value: Any) -> Any:
    """A plain copy of a value for an event, at most about `MOST_CHARACTERS` of it."""
    return _Copy().of(value, 0)


def from_plain(value: Any) -> Any:
    """What an event gives back: descriptions are `Described` again."""
    kind = type(value)
    if kind is dict:
        if len(value) == 1:
            ((key, held),) = value.items()
            if key == _DESCRIBED:
                return Described(*held)
            if key == _AS_IT_IS:
                value = held
        return {key: from_plain(held) for key, held in value.items()}
    if kind in (list, tuple, set, frozenset):
        return kind(map(from_plain, value))
    return value


def cut(text: str, most: int) -> str:
    """A text that UTF-8 can say, the middle of which is left out if it is longer."""
    if len(text) > most:
        half = most // 2
        left_out = f" ... ({len(text) - 2 * half:,} characters left out) ... "
        text = text[:half] + left_out + text[-half:]
    return text.encode("utf-8", "backslashreplace").decode()


def name_of(cls: type) -> str:
    """The name of a class, for people."""
    return default_name(cls).removeprefix("builtins.")


def describe(value: Any) -> dict[str, Any]:
    """The plain form of a `Described`."""
    if value is HIDDEN:
        return {_DESCRIBED: ["hidden", "hidden"]}
    return {_DESCRIBED: [name_of(type(value)), _shown(value)]}


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return cut(value, _LONGEST_SAMPLE)
    if type(value) is int:
        return f"a number of {value.bit_length():,} bits"
    try:
        if isinstance(value, (bytes, bytearray)):
            return f"{len(value):,} bytes, from {bytes(value[:40])!r} on"
        if isinstance(value, Sized) and isinstance(value, Iterable):
            # How a collection shows itself may be as long as the collection.
            return f"{len(value):,} long"
        return cut(repr(value), _LONGEST_DESCRIPTION)
    except Exception as error:  # noqa: BLE001 - an event is kept, whatever an object does
        return f"(it cannot be shown: {type(error).__qualname__})"


class _Copy:
    """One copy of one value; what is beyond its room is described."""

    def __init__(self) -> None:
        self._room = MOST_CHARACTERS

    def of(self, value: Any, depth: int) -> Any:
        kind = type(value)
        self._room -= 8
        if kind is str:
            return self._text(value)
        if kind in (list, tuple, dict, set, frozenset):
            if self._room < 0 or depth == _MOST_DEPTH:
                return describe(value)
            return self._mapping(value, depth) if kind is dict else self._items(value, depth)
        return self._atom(value)

    def _atom(self, value: Any) -> Any:
        kind = type(value)
        if kind in _SMALL:
            return value
        if kind is int:
            return value if value.bit_length() <= _MOST_BITS else describe(value)
        if kind not in _ATOMS and not isinstance(value, PurePath):
            return describe(value)
        if kind in (bytes, bytearray) and len(value) > _LONGEST_ATOM:
            return describe(value)
        try:
            # A date may have a zone of the program's own, a path a class of its own.
            data = _codec.encode(value)
        except NotStorable:
            return describe(value)
        self._room -= len(data)
        return _codec.decode(data)

    def _text(self, value: str) -> Any:
        if len(value) > max(self._room, 80):
            return describe(value)
        self._room -= len(value)
        return cut(value, MOST_CHARACTERS)

    def _items(self, value: Any, depth: int) -> Any:
        if len(value) * 8 > self._room:
            return describe(value)
        kind = type(value)
        copied = [self.of(item, depth + 1) for item in value]
        if kind in (set, frozenset) and any(type(item) is dict for item in copied):
            return describe(value)
        return kind(copied)

    def _mapping(self, value: dict[Any, Any], depth: int) -> Any:
        if len(value) * 16 > self._room:
            return describe(value)
        copied: dict[Any, Any] = {}
        for key, held in list(value.items()):
            name = self.of(key, depth + 1)
            try:
                copied[name] = self.of(held, depth + 1)
            except TypeError:  # The key is described, and a description is no key.
                return describe(value)
        if len(copied) == 1 and next(iter(copied)) in (_DESCRIBED, _AS_IT_IS):
            return {_AS_IT_IS: copied}
        return copied
