"""What externalized values may be made of: what graphs hold, and the classes of the state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, get_args

from ropewalk.adapters.langgraph.classes import GraphTypes
from ropewalk.codec import Codec


def codec_for(hints: Iterable[Any]) -> Codec:
    """A codec that knows LangChain's messages and documents, and the classes in annotations."""
    types = GraphTypes()
    types.declare(_classes(hints))
    return Codec(types.registry)


def _classes(hints: Iterable[Any]) -> Iterator[type]:
    for hint in hints:
        if isinstance(hint, type):
            yield hint
        yield from _classes(get_args(hint))
