"""The codec for what a caller handed over."""

from __future__ import annotations

from collections.abc import Iterable

from ropewalk.codec._codec import Codec
from ropewalk.errors import InvalidInput


def codec_of(codec: Codec | None, types: Iterable[type], pickle_key: bytes | None) -> Codec:
    """A codec as it was given, or one for some types and a key."""
    if codec is None:
        return Codec(types=types, pickle_key=pickle_key)
    if pickle_key is not None or tuple(types):
        raise InvalidInput("a codec has its own types and pickle key: give those to it")
    return codec
