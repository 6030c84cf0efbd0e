"""Values imported from another database before their class was declared.

LangGraph's serializer stores a value as the name of a class and the arguments to call it with. If
the class is declared, the object is built at once. Otherwise the name and the arguments are kept
as they are, and the object is built when read after the class has been declared. Nothing that
bytes name is ever imported or called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, Final

from ropewalk.codec import Undeclared
from ropewalk.codec.msgpack import Code
from ropewalk.codec.registry import undeclared

PREFIX: Final = "langgraph:"
"""Prefixes the name of a class whose value is kept as LangGraph stored it."""


class Call(IntEnum):
    """How LangGraph's serializer would build an object: the codes of its extensions."""

    ONE = 0
    POSITIONS = 1
    NAMES = 2
    METHOD = 3
    MODEL_V1 = 4
    MODEL_V2 = 5


_CALLS: Final = frozenset(Call)


def deferred(module: str, name: str, call: Call, argument: Any, *more: Any) -> Undeclared:
    """A value to be built once its class is declared; `more` is the rest of its stored form."""
    content = [int(call), argument, *more]
    return undeclared(Code.CUSTOM, [f"{PREFIX}{module}.{name}", 1], content)


def is_deferred(name: str) -> bool:
    """Whether this is the stored name of such a value."""
    return name.startswith(PREFIX)


def class_name(name: str) -> str:
    """The name of the class itself."""
    return name.removeprefix(PREFIX)


def raw(content: Any) -> Any:
    """The raw form of the object while its class is undeclared: its fields or its argument."""
    return content[1] if _is_content(content) else content


def rebuild(cls: type[Any], content: Any) -> Any:
    """Build the object of a declared class, as LangGraph's serializer does.

    Raises whatever the class raises if it does not accept the arguments.
    """
    if not _is_content(content):
        raise TypeError("these are no arguments of LangGraph's serializer")
    return build(cls, Call(content[0]), content[1])


def build(cls: type[Any], call: Call, argument: Any) -> Any:
    """Call a declared class with the stored arguments."""
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
        # Data that was valid when stored may no longer be: LangGraph accepts it.
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
