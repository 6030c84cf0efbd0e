"""LangGraph on Ropewalk: a checkpointer, two stores, and typed state for its own checkpointers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ropewalk.adapters.langgraph.classes import UnknownTypeWarning
    from ropewalk.adapters.langgraph.coherence import CoherenceAdapter
    from ropewalk.adapters.langgraph.coherent.store import CoherentStore, ItemChange
    from ropewalk.adapters.langgraph.saver.saver import RopewalkSaver
    from ropewalk.adapters.langgraph.store.items import (
        ItemVersion,
        StoreItem,
        StoreSearchItem,
    )
    from ropewalk.adapters.langgraph.store.store import RopewalkStore, StoreView
    from ropewalk.adapters.langgraph.transfer.export import Exported, export_checkpoints
    from ropewalk.adapters.langgraph.transfer.takeover import Imported, import_checkpoints
    from ropewalk.adapters.langgraph.typed.adapter import LangGraphAdapter

__all__ = [
    "CoherenceAdapter",
    "CoherentStore",
    "Exported",
    "Imported",
    "ItemChange",
    "ItemVersion",
    "LangGraphAdapter",
    "RopewalkSaver",
    "RopewalkStore",
    "StoreItem",
    "StoreSearchItem",
    "StoreView",
    "UnknownTypeWarning",
    "export_checkpoints",
    "import_checkpoints",
]

_MODULES = {
    "CoherenceAdapter": "coherence",
    "CoherentStore": "coherent.store",
    "Exported": "transfer.export",
    "Imported": "transfer.takeover",
    "ItemChange": "coherent.store",
    "ItemVersion": "store.items",
    "LangGraphAdapter": "typed.adapter",
    "Adapter": "typed.adapter",
    "RopewalkSaver": "saver.saver",
    "RopewalkStore": "store.store",
    "StoreItem": "store.items",
    "StoreSearchItem": "store.items",
    "StoreView": "store.store",
    "UnknownTypeWarning": "classes",
    "export_checkpoints": "transfer.export",
    "import_checkpoints": "transfer.takeover",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"{__name__}.{_MODULES[name]}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("langgraph", "langchain_core"):
            raise ImportError(
                "ropewalk.adapters.langgraph needs LangGraph: pip install 'ropewalk[langgraph]'"
            ) from error
        raise
    return getattr(module, name)


def __dir__() -> list[str]:
    return __all__
