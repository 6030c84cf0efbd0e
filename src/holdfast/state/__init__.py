"""What an agent holds: plain, versioned and typed state."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.state._state import Recorded, State

if TYPE_CHECKING:
    from holdfast.state._agent_state import AgentState
    from holdfast.state._checkout import Checkout
    from holdfast.state._content import ContentRef, arelease, release
    from holdfast.state._events import (
        ActionEvent,
        Event,
        FailEvent,
        OutputEvent,
        SuccessEvent,
        TaskStartEvent,
        events,
    )
    from holdfast.state._fields import UNSET, Externalized, Inline, StateField, default
    from holdfast.state._frameworks import Framework
    from holdfast.state._invariants import validate_checkpoint, validate_state
    from holdfast.state._live import Live
    from holdfast.state._namespace import Namespace
    from holdfast.state._pins import aprune_expired, prune_expired
    from holdfast.state._plain import Described
    from holdfast.state._reducers import append_items, merge_keys, replace_value
    from holdfast.state._runs import current_state, record
    from holdfast.state._runtime import Runtime, configure, create_runtime, get_config, using
    from holdfast.state._task import Task, task
    from holdfast.state._versioned import Versioned
    from holdfast.state._view import view

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
    "AgentState": "_agent_state",
    "ContentRef": "_content",
    "arelease": "_content",
    "release": "_content",
    "UNSET": "_fields",
    "Externalized": "_fields",
    "Inline": "_fields",
    "StateField": "_fields",
    "default": "_fields",
    "Framework": "_frameworks",
    "validate_checkpoint": "_invariants",
    "validate_state": "_invariants",
    "aprune_expired": "_pins",
    "prune_expired": "_pins",
    "append_items": "_reducers",
    "merge_keys": "_reducers",
    "replace_value": "_reducers",
    "Runtime": "_runtime",
    "configure": "_runtime",
    "create_runtime": "_runtime",
    "get_config": "_runtime",
    "using": "_runtime",
    "ActionEvent": "_events",
    "Checkout": "_checkout",
    "Described": "_plain",
    "Event": "_events",
    "FailEvent": "_events",
    "Live": "_live",
    "Namespace": "_namespace",
    "OutputEvent": "_events",
    "SuccessEvent": "_events",
    "Task": "_task",
    "TaskStartEvent": "_events",
    "Versioned": "_versioned",
    "current_state": "_runs",
    "events": "_events",
    "record": "_runs",
    "task": "_task",
    "view": "_view",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"holdfast.state.{_HOMES[name]}"), name)
    globals()[name] = found
    return found
