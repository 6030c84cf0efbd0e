"""Encoding what other threads may be changing at the same time.

ormsgpack walks over a list without holding its items. Where it calls a hook, another
thread may run, take items out of that list, and leave it with freed memory. So here it
is called without hooks, which nothing can interrupt, and what that cannot say is
encoded by the walk in Python.
"""

from __future__ import annotations

from typing import Any

from ropewalk.codec._codec import Codec
from ropewalk.codec._msgpack import may_hold_binary, pack
from ropewalk.codec._walk import Walk


class SharedCodec(Codec):
    """The same as another codec, for values that several threads hold."""

    def __init__(self, codec: Codec) -> None:
        self.__dict__.update(codec.__dict__)

    def encode_noting_binary(self, value: Any) -> tuple[bytes, bool]:
        """The encoding, and whether the value may hold bytes."""
        data = self.encode_again(value)
        if data is None or may_hold_binary(data):
            return Walk(self).encode(value), True
        return data, False

    def encode_again(self, value: Any) -> bytes | None:
        """The encoding without a look for bytearrays, or None where that needs a walk."""
        try:
            return pack(value)
        except TypeError:
            return None
