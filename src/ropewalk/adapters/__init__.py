"""Typed state in frameworks: which one is in use, and what every adapter does."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ropewalk.adapters.typed_state import (
        Hydrated,
        StateAdapter,
        Update,
        auto_adapt,
        detect_active_framework,
    )

__all__ = [
    "Hydrated",
    "StateAdapter",
    "Update",
    "auto_adapt",
    "detect_active_framework",
]

# Imported lazily: the command line needs one adapter, and no typed state.


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.typed_state"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
