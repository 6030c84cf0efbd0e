"""The classes that a state of the framework may hold: those that its fields name."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from typing import Any, get_args, get_type_hints

from pydantic import BaseModel

from ropewalk.codec import Codec
from ropewalk.codec.registry import can_declare


def declare(codec: Codec, types: Iterable[type]) -> None:
    """Let a codec store and read these classes, and all that their fields name.

    What the program declared itself stays as it declared it.
    """
    for cls in named_classes(types):
        if codec.registry.of(cls) is None and can_declare(cls):
            codec.registry.register(cls)


def named_classes(types: Iterable[type]) -> list[type]:
    """These classes, and those that their fields name, all the way down."""
    found: dict[type, None] = {}
    waiting = list(types)
    while waiting:
        cls = waiting.pop()
        if cls in found:
            continue
        found[cls] = None
        for hint in _hints(cls):
            waiting.extend(one for one in _classes_in(hint) if one not in found)
    return list(found)


def _hints(cls: type) -> Iterable[Any]:
    if issubclass(cls, BaseModel):
        return [field.annotation for field in cls.model_fields.values()]
    if issubclass(cls, enum.Enum) or not can_declare(cls):
        return ()
    try:
        return get_type_hints(cls).values()
    except NameError:
        return ()  # Named by a text that leads nowhere: then the program declares it.


def _classes_in(hint: Any) -> Iterator[type]:
    if isinstance(hint, type) and hint is not BaseModel and can_declare(hint):
        yield hint
    for inner in get_args(hint):
        yield from _classes_in(inner)
