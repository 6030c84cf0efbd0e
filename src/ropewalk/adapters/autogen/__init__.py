"""AutoGen: large values kept outside messages and states, saved teams, and shared artifacts."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ropewalk.adapters.installed import import_with

if TYPE_CHECKING:
    from ropewalk.adapters.autogen.coherence import (
        CoherenceAdapter,
        CoherentAgent,
        CoherentContext,
    )
    from ropewalk.adapters.autogen.context import RopewalkContext
    from ropewalk.adapters.autogen.references import AutoGenAdapter
    from ropewalk.adapters.autogen.teams import TeamTimeline

__all__ = [
    "AutoGenAdapter",
    "CoherenceAdapter",
    "CoherentAgent",
    "CoherentContext",
    "RopewalkContext",
    "TeamTimeline",
]

_WITHOUT_AUTOGEN = {"AutoGenAdapter": "references", "TeamTimeline": "teams"}
_PACKAGES = {
    "autogen_core": ("autogen-core", "0.7"),
    "autogen_agentchat": ("autogen-agentchat", "0.7"),
}


def __getattr__(name: str) -> Any:
    name = {"Adapter": "AutoGenAdapter"}.get(name, name)  # As `auto_adapt` looks it up.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _WITHOUT_AUTOGEN:
        return getattr(import_module(f"{__name__}.{_WITHOUT_AUTOGEN[name]}"), name)
    module = f"{__name__}.{'context' if name == 'RopewalkContext' else 'coherence'}"
    install = "pip install 'ropewalk[autogen]'"
    return getattr(import_with(module, "AutoGen", _PACKAGES, install), name)


def __dir__() -> list[str]:
    return __all__
