"""Values whose class was not known when they were taken over from another database.

LangGraph's serializer stores a value as the name of a class and what to call it with. Where
the class is declared, it is built at once. Where it is not, name and arguments are kept as
they were, and whoever declares the class later reads its objects. Nothing that bytes name is
imported or called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, Final

from ropewalk.codec import Undeclared
from ropewalk.codec.msgpack import Code
from ropewalk.codec.registry import undeclared

PREFIX: Final = "langgraph:"
"""Stands before the name of a class, for a value that is kept as LangGraph stored it."""


class Call(IntEnum):
    """How LangGraph's serializer would make an object: the codes of its extensions."""

    ONE = 0
    POSITIONS = 1
    NAMES = 2
    METHOD = 3
    MODEL_V1 = 4
    MODEL_V2 = 5


_CALLS: Final = frozenset(Call)


def deferred(module: str, name: str, call: Call, argument: Any, *more: Any) -> Undeclared:
    """A value that is kept until its class is known; `more` is what else was stored of it."""
    content = [int(call), argument, *more]
    return undeclared(Code.CUSTOM, [f"{PREFIX}{module}.{name}", 1], content)


def is_deferred(name: str) -> bool:
    """Whether this is the stored name of such a value."""
    return name.startswith(PREFIX)


def class_name(name: str) -> str:
    """The name of the class itself."""
    return name.removeprefix(PREFIX)


def raw(content: Any) -> Any:
    """What stands for the object where its class is not declared: its fields or its argument."""
    return content[1] if _is_content(content) else content


def rebuild(cls: type[Any], content: Any) -> Any:
    """The object, of a class that somebody declared, as LangGraph's serializer makes it.

    Raises whatever the class raises if it does not take what was stored.
    """
    if not _is_content(content):
        raise TypeError("these are no arguments of LangGraph's serializer")
    return build(cls, Call(content[0]), content[1])


def build(cls: type[Any], call: Call, argument: Any) -> Any:
    """Call a declared class with what was stored."""
    if call is Call.POSITIONS:
        return cls(*_sequence(argument))
    if call is Call.NAMES:
        return cls(**_mapping(argument))
    if call in (Call.MODEL_V1, Call.MODEL_V2):
        return _model(cls, _mapping(argument))
    if call is Call.METHOD:
        raise TypeError("methods of classes are not called")
    return cls(argument)


def _model(cls: type[Any], fields: Mapping[str, Any]) -> Any:
    try:
        return cls(**fields)
    except Exception:
        # What was right when it was stored may not be valid any more: LangGraph takes it.
        made = getattr(cls, "model_construct", None) or getattr(cls, "construct", None)
        if made is None:
            raise
        return made(**fields)


def _is_content(content: Any) -> bool:
    return isinstance(content, list) and len(content) in (2, 3) and content[0] in _CALLS


def _sequence(argument: Any) -> Sequence[Any]:
    if not isinstance(argument, list | tuple):
        raise TypeError("the arguments are not a list")
    return argument


def _mapping(argument: Any) -> Mapping[str, Any]:
    if not isinstance(argument, dict) or not all(isinstance(name, str) for name in argument):
        raise TypeError("the arguments are not named")
    return argument
