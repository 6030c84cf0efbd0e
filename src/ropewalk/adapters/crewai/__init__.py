"""Shared artifacts in CrewAI: tasks that read them fresh and commit their output."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ropewalk.adapters.crewai.coherence import CoherenceAdapter, CoherentTask

__all__ = ["CoherenceAdapter", "CoherentTask"]


def __getattr__(name: str) -> Any:
    if name == "Adapter":  # Looked up by `auto_adapt`: typed state needs nothing specific here.
        return import_module("ropewalk.adapters").StateAdapter
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"{__name__}.coherence")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("crewai",):
            raise ImportError(
                "ropewalk.adapters.crewai needs CrewAI: pip install 'ropewalk[crewai]'"
            ) from error
        raise
    return getattr(module, name)


def __dir__() -> list[str]:
    return __all__
