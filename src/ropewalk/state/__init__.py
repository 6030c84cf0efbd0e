"""What an agent holds: plain, versioned and typed state."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ropewalk.state.live import Recorded, State

if TYPE_CHECKING:
    from ropewalk.state.agent_state import AgentState, validate_checkpoint, validate_state
    from ropewalk.state.content_ref import (
        ContentRef,
        aprune_expired,
        arelease,
        prune_expired,
        release,
    )
    from ropewalk.state.event_log import (
        ActionEvent,
        Described,
        Event,
        FailEvent,
        OutputEvent,
        SuccessEvent,
        TaskStartEvent,
        events,
    )
    from ropewalk.state.externalized import append_items, merge_keys, replace_value
    from ropewalk.state.fields import UNSET, Externalized, Inline, StateField, default
    from ropewalk.state.live import Live
    from ropewalk.state.runtime import (
        Framework,
        Runtime,
        configure,
        create_runtime,
        get_config,
        using,
    )
    from ropewalk.state.tasks import Task, current_state, record, task
    from ropewalk.state.versioned import Checkout, Namespace, Versioned
    from ropewalk.state.views import view

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

# Loaded on first access: a program usually needs one or two kinds of state.
_HOMES = {
    "agent_state": "AgentState validate_checkpoint validate_state",
    "content_ref": "ContentRef aprune_expired arelease prune_expired release",
    "event_log": "ActionEvent Described Event FailEvent OutputEvent SuccessEvent TaskStartEvent "
    "events",
    "externalized": "append_items merge_keys replace_value",
    "fields": "UNSET Externalized Inline StateField default",
    "live": "Live",
    "runtime": "Framework Runtime configure create_runtime get_config using",
    "tasks": "Task current_state record task",
    "versioned": "Checkout Namespace Versioned",
    "views": "view",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"ropewalk.state.{_HOME_OF[name]}"), name)
    globals()[name] = found
    return found
