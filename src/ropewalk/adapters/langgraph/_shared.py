"""Values that other threads may be changing while they are encoded.

ormsgpack with hooks is not safe then. So lists and dicts are copied before they are looked
at, which nothing can interrupt, and hooks are called only for what nobody else holds.
"""

from __future__ import annotations

from typing import Any, Final

from ormsgpack import Fragment

from ropewalk.adapters.langgraph._codec import GraphCodec
from ropewalk.adapters.langgraph._looking import PLAIN
from ropewalk.codec import Codec
from ropewalk.codec._msgpack import (
    array_header,
    map_header,
    may_hold_binary,
    pack,
)
from ropewalk.codec._walk import Walk
from ropewalk.errors import NotStorable

_SOUND: Final = (PLAIN - {bytes}) | {Fragment}
_DEEPEST: Final = 60
"""Below so many lists and dicts, values are walked over one by one."""


class SharedGraphCodec(GraphCodec):
    """The same as another codec, for values that several threads hold.

    Lists and dicts are copied before they are looked at, and hooks are called only for what
    nobody else holds.
    """

    def __init__(self, codec: GraphCodec) -> None:
        self.__dict__.update(codec.__dict__)

    def shared(self) -> Codec:
        """The codec itself."""
        return self

    def encode_noting_binary(self, value: Any) -> tuple[bytes, bool]:
        """The encoding, and whether the value may hold bytes."""
        if type(value) is list:
            value = list(value)
        data = self.encode_again(value)
        if data is not None and (not may_hold_binary(data) or self._is_sound(value)):
            return data, False
        return Walk(self).encode(value), True

    def _is_sound(self, value: Any) -> bool:
        """Whether a list holds nothing but what no bytearray could imitate."""
        return type(value) is list and set(map(type, value)) <= self._quick | _SOUND

    def encode_again(self, value: Any) -> bytes | None:
        """The encoding without a look for bytearrays, or None where that needs a walk."""
        try:
            return self._bytes(value, 0)
        except TypeError:
            return None

    def _bytes(self, value: Any, level: int) -> bytes:
        """The encoding of a value; raises TypeError where that needs a walk."""
        cls = type(value)
        if cls in PLAIN or cls is Fragment:
            return pack(value)
        if level > _DEEPEST:
            raise TypeError("nested too deeply")
        if cls is list:
            return self._list(list(value), level)
        if cls is dict:
            return self._dict(dict(value), level)
        data = self._record(value, 0)
        if data is None:
            data = self._item(value)
        if data is None:
            raise TypeError("it needs a walk")
        return data

    def _list(self, items: list[Any], level: int) -> bytes:
        if self._holds_records(items):
            data = self._assembled(items)
            if data is None:
                raise TypeError("it needs a walk")
            return data
        try:
            return pack(items)
        except TypeError:
            parts = [self._bytes(item, level + 1) for item in items]
            return array_header(len(parts)) + b"".join(parts)

    def _dict(self, mapping: dict[Any, Any], level: int) -> bytes:
        if not set(map(type, mapping)) <= {str}:
            raise TypeError("it needs a walk")
        try:
            return pack(mapping)
        except TypeError:
            parts = [pack(key) + self._bytes(value, level + 1) for key, value in mapping.items()]
            return map_header(len(parts)) + b"".join(parts)

    def _item(self, value: Any) -> bytes | None:
        try:
            if type(value) in (list, dict, Fragment):
                return self._bytes(value, 1)
            return Walk(self).encode(value)
        except (TypeError, NotStorable):
            return None

    def inside(self, value: Any, depth: int) -> bytes | None:
        try:
            return pack([[value]])
        except TypeError:
            pass
        try:
            return b"\x91\x91" + Walk(self).encode_at(value, depth + 1)
        except NotStorable:
            return None
