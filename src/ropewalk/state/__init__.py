"""What an agent holds: plain, versioned and typed state."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ropewalk.state._state import Recorded, State

if TYPE_CHECKING:
    from ropewalk.state._live import Live
    from ropewalk.state._tasks._events import (
        ActionEvent,
        Event,
        FailEvent,
        OutputEvent,
        SuccessEvent,
        TaskStartEvent,
        events,
    )
    from ropewalk.state._tasks._plain import Described
    from ropewalk.state._tasks._runs import current_state, record
    from ropewalk.state._tasks._task import Task, task
    from ropewalk.state._typed._agent_state import AgentState
    from ropewalk.state._typed._content import ContentRef, arelease, release
    from ropewalk.state._typed._fields import UNSET, Externalized, Inline, StateField, default
    from ropewalk.state._typed._frameworks import Framework
    from ropewalk.state._typed._invariants import validate_checkpoint, validate_state
    from ropewalk.state._typed._pins import aprune_expired, prune_expired
    from ropewalk.state._typed._reducers import append_items, merge_keys, replace_value
    from ropewalk.state._typed._runtime import Runtime, configure, create_runtime, get_config, using
    from ropewalk.state._versioned._checkout import Checkout
    from ropewalk.state._versioned._namespace import Namespace
    from ropewalk.state._versioned._versioned import Versioned
    from ropewalk.state._views._view import view

__all__ = [
    "UNSET",
    "ActionEvent",
    "AgentState",
    "Checkout",
    "ContentRef",
    "Described",
    "Event",
    "Externalized",
    "FailEvent",
    "Framework",
    "Inline",
    "Live",
    "Namespace",
    "OutputEvent",
    "Recorded",
    "Runtime",
    "State",
    "StateField",
    "SuccessEvent",
    "Task",
    "TaskStartEvent",
    "Versioned",
    "append_items",
    "aprune_expired",
    "arelease",
    "configure",
    "create_runtime",
    "current_state",
    "default",
    "events",
    "get_config",
    "merge_keys",
    "prune_expired",
    "record",
    "release",
    "replace_value",
    "task",
    "using",
    "validate_checkpoint",
    "validate_state",
    "view",
]

# Loaded when they are first asked for: a program uses one kind of state or two.
_HOMES: dict[str, str] = {
    "AgentState": "_typed._agent_state",
    "ContentRef": "_typed._content",
    "arelease": "_typed._content",
    "release": "_typed._content",
    "UNSET": "_typed._fields",
    "Externalized": "_typed._fields",
    "Inline": "_typed._fields",
    "StateField": "_typed._fields",
    "default": "_typed._fields",
    "Framework": "_typed._frameworks",
    "validate_checkpoint": "_typed._invariants",
    "validate_state": "_typed._invariants",
    "aprune_expired": "_typed._pins",
    "prune_expired": "_typed._pins",
    "append_items": "_typed._reducers",
    "merge_keys": "_typed._reducers",
    "replace_value": "_typed._reducers",
    "Runtime": "_typed._runtime",
    "configure": "_typed._runtime",
    "create_runtime": "_typed._runtime",
    "get_config": "_typed._runtime",
    "using": "_typed._runtime",
    "ActionEvent": "_tasks._events",
    "Checkout": "_versioned._checkout",
    "Described": "_tasks._plain",
    "Event": "_tasks._events",
    "FailEvent": "_tasks._events",
    "Live": "_live",
    "Namespace": "_versioned._namespace",
    "OutputEvent": "_tasks._events",
    "SuccessEvent": "_tasks._events",
    "Task": "_tasks._task",
    "TaskStartEvent": "_tasks._events",
    "Versioned": "_versioned._versioned",
    "current_state": "_tasks._runs",
    "events": "_tasks._events",
    "record": "_tasks._runs",
    "task": "_tasks._task",
    "view": "_views._view",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"ropewalk.state.{_HOMES[name]}"), name)
    globals()[name] = found
    return found
