"""What an agent holds: plain, versioned and typed state."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.state._state import Recorded, State

if TYPE_CHECKING:
    from holdfast.state._checkout import Checkout
    from holdfast.state._events import (
        ActionEvent,
        Event,
        FailEvent,
        OutputEvent,
        SuccessEvent,
        TaskStartEvent,
        events,
    )
    from holdfast.state._live import Live
    from holdfast.state._namespace import Namespace
    from holdfast.state._plain import Described
    from holdfast.state._runs import current_state, record
    from holdfast.state._task import Task, task
    from holdfast.state._versioned import Versioned
    from holdfast.state._view import view

__all__ = [
    "ActionEvent",
    "Checkout",
    "Described",
    "Event",
    "FailEvent",
    "Live",
    "Namespace",
    "OutputEvent",
    "Recorded",
    "State",
    "SuccessEvent",
    "Task",
    "TaskStartEvent",
    "Versioned",
    "current_state",
    "events",
    "record",
    "task",
    "view",
]

# Loaded when they are first asked for: a program uses one kind of state or two.
_HOMES: dict[str, str] = {
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
