"""Shared artifacts in AutoGen: agents that read them fresh and commit their output."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ropewalk.adapters.autogen.coherence import (
        CoherenceAdapter,
        CoherentAgent,
        CoherentContext,
    )

__all__ = ["CoherenceAdapter", "CoherentAgent", "CoherentContext"]


def __getattr__(name: str) -> Any:
    if name == "Adapter":  # Looked up by `auto_adapt`: typed state needs nothing specific here.
        return import_module("ropewalk.adapters").StateAdapter
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"{__name__}.coherence")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("autogen_core", "autogen_agentchat"):
            raise ImportError(
                "ropewalk.adapters.autogen needs AutoGen: pip install 'ropewalk[autogen]'"
            ) from error
        raise
    return getattr(module, name)


def __dir__() -> list[str]:
    return __all__
