"""What an agent holds: plain, versioned and typed state."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.state._state import Recorded, State

if TYPE_CHECKING:
    from holdfast.state._checkout import Checkout
    from holdfast.state._namespace import Namespace
    from holdfast.state._versioned import Versioned

__all__ = [
    "Checkout",
    "Namespace",
    "Recorded",
    "State",
    "Versioned",
]

# Loaded when they are first asked for: a program uses one kind of state or two.
_HOMES: dict[str, str] = {
    "Checkout": "_checkout",
    "Namespace": "_namespace",
    "Versioned": "_versioned",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"holdfast.state.{_HOMES[name]}"), name)
    globals()[name] = found
    return found
