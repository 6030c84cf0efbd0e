"""Microsoft Agent Framework: checkpoints of workflows, and the history of agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ropewalk.adapters.installed import import_with

if TYPE_CHECKING:
    from ropewalk.adapters.agent_framework.checkpoints import RopewalkCheckpointStorage
    from ropewalk.adapters.agent_framework.history import RopewalkHistoryProvider

__all__ = ["RopewalkCheckpointStorage", "RopewalkHistoryProvider"]

_HOMES = {"RopewalkCheckpointStorage": "checkpoints", "RopewalkHistoryProvider": "history"}
_PACKAGES = {"agent_framework": ("agent-framework-core", "1.23")}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = f"{__name__}.{_HOMES[name]}"
    install = "pip install 'ropewalk[agent-framework]'"
    return getattr(import_with(module, "Agent Framework", _PACKAGES, install), name)


def __dir__() -> list[str]:
    return __all__
