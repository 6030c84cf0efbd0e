"""The codec for what a caller handed over."""

from __future__ import annotations

from collections.abc import Iterable

from ropewalk.codec._codec import Codec
from ropewalk.codec._registry import Classes
from ropewalk.errors import InvalidInput


def codec_of(
    codec: Codec | None,
    types: Iterable[type],
    pickle_key: bytes | None = None,
    classes: Classes | None = None,
) -> Codec:
    """A codec as it was given, or one for some types, a key and a choice of classes."""
    if codec is None:
        return Codec(types=types, pickle_key=pickle_key, classes=classes or "plain")
    if pickle_key is not None or tuple(types) or classes is not None:
        raise InvalidInput("a codec has its own types, pickle key and classes: give those to it")
    return codec
