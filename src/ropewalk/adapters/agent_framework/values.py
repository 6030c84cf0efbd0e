"""How the framework's own objects are stored: by their fields, and without running its code.

What a program puts beside them is stored as everywhere: plain values, and plain data classes that
the program has loaded.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from functools import partial, reduce
from operator import or_
from typing import Any, Final, Union, get_args, get_origin

from agent_framework import (
    AgentExecutorRequest,
    AgentExecutorResponse,
    AgentResponse,
    AgentResponseUpdate,
    AgentSession,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    Message,
    SubWorkflowRequestMessage,
    SubWorkflowResponseMessage,
    WorkflowCheckpoint,
    WorkflowErrorDetails,
    WorkflowEvent,
    WorkflowMessage,
    WorkflowRunState,
)

from ropewalk.codec import Registry
from ropewalk.codec.classes import default_name, find_class
from ropewalk.errors import FormatError, NotStorable, UndeclaredClass

_RAW: Final = "raw_representation"
"""The field for an object of a model's client, which the framework drops in checkpoints, too."""
_CONSTANTS: Final = (type(None), bool, int, str)

_EMPTY: Final[dict[type[Any], Callable[[], Any]]] = {
    AgentResponse: AgentResponse,
    AgentResponseUpdate: AgentResponseUpdate,
    AgentSession: partial(AgentSession, session_id=""),
    ChatResponse: ChatResponse,
    ChatResponseUpdate: ChatResponseUpdate,
    Content: partial(Content, "text"),
    Message: partial(Message, "user"),
    WorkflowEvent: partial(WorkflowEvent, "data"),
}
"""The classes, and how to make an object of which most fields have their defaults."""

_PLAIN: Final[tuple[type[Any], ...]] = (
    AgentExecutorRequest,
    AgentExecutorResponse,
    SubWorkflowRequestMessage,
    SubWorkflowResponseMessage,
    WorkflowCheckpoint,
    WorkflowErrorDetails,
    WorkflowMessage,
    WorkflowRunState,
    type(WorkflowMessage(None, "").type),
    type(WorkflowEvent("data").origin),
)
"""Its plain data. The framework loads its modules late, perhaps after a checkpoint is read."""


def declare(registry: Registry) -> None:
    """Let a registry store and read the framework's classes."""
    for cls in _PLAIN:
        registry.register(cls, name=f"agent_framework.{cls.__name__}")
    for cls, make in _EMPTY.items():
        fields = _Fields(cls, vars(make()))
        registry.register(
            cls,
            name=f"agent_framework.{cls.__name__}",
            encode=fields.of_event if cls is WorkflowEvent else fields.of,
            decode=fields.event if cls is WorkflowEvent else fields.fill,
        )


class _Fields:
    """The fields of one class; those with the default are left out."""

    def __init__(self, cls: type[Any], empty: Mapping[str, Any]) -> None:
        self._cls = cls
        self._defaults = {name: value for name, value in empty.items() if type(value) in _CONSTANTS}

    def of(self, value: Any) -> dict[str, Any]:
        """The fields of an object."""
        defaults = self._defaults
        found = {
            name: one
            for name, one in vars(value).items()
            if one is not defaults.get(name, _RAW) and name != _RAW
        }
        annotations = found.get("annotations")
        if annotations:
            found["annotations"] = [_without_raw(one) for one in annotations]
        return found

    def fill(self, fields: dict[str, Any]) -> Any:
        """An object with these fields."""
        made = object.__new__(self._cls)
        vars(made).update(self._defaults)
        vars(made).update(fields)
        return made

    def of_event(self, event: Any) -> dict[str, Any]:
        """The fields of an event, with the names of types in place of these."""
        fields = self.of(event)
        for name in ("_request_type", "_response_type"):
            if name in fields:
                fields[name] = _spelled(fields[name])
        return fields

    def event(self, fields: dict[str, Any]) -> Any:
        """An event with these fields."""
        for name in ("_request_type", "_response_type"):
            if name in fields:
                fields[name] = read_type(fields[name])
        return self.fill(fields)


def _without_raw(annotation: Any) -> Any:
    if not isinstance(annotation, dict):
        return annotation
    return {name: value for name, value in annotation.items() if name != _RAW}


# The types of requests and responses: classes, containers of them, and what `|` makes of them.
# Containers are builtin ones: brackets behind another class would run its code on reading.

_CONTAINERS: Final = (list, dict, tuple, set, frozenset)


def _spelled(hint: Any) -> Any:
    """The name of a type, or a list with the name of its origin and those of its arguments."""
    if hint is Any:
        return "typing.Any"
    if hint is None:
        return "builtins.NoneType"
    origin = get_origin(hint)
    if origin is not None:
        if origin in (Union, types.UnionType):
            return ["|", *map(_spelled, get_args(hint))]
        if origin in _CONTAINERS:
            return [_spelled(origin), *map(_spelled, get_args(hint))]
        raise NotStorable(f"{hint!r:.80} is a generic class of your own. Name a class without []")
    if isinstance(hint, type):
        return "builtins.NoneType" if hint is types.NoneType else default_name(hint)
    raise NotStorable(f"{hint!r:.80} is not a class, nor made of classes")


def read_type(spelled: Any) -> Any:
    """The type of `_spelled`, if the program has loaded its classes."""
    if isinstance(spelled, list) and len(spelled) > 1:
        outer, *arguments = spelled
        hints = tuple(map(read_type, arguments))
        if outer == "|":
            return reduce(or_, hints)
        container = read_type(outer)
        if container in _CONTAINERS:
            return types.GenericAlias(container, hints)
    if not isinstance(spelled, str):
        raise FormatError(f"a stored event names {spelled!r:.80} as a type")
    if spelled == "typing.Any":
        return Any
    if spelled == "builtins.NoneType":
        return types.NoneType
    found, _ = find_class(spelled)
    if found is None:
        raise UndeclaredClass(
            spelled, f"a stored event names the type {spelled!r:.80}, which is not loaded here"
        )
    return found
