"""LangGraph on Ropewalk: a checkpointer, two stores, and typed state for its own checkpointers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ropewalk.adapters.langgraph._adapter import LangGraphAdapter
    from ropewalk.adapters.langgraph._coherence import CoherenceAdapter
    from ropewalk.adapters.langgraph._coherent import CoherentStore
    from ropewalk.adapters.langgraph._coherent_watching import ItemChange
    from ropewalk.adapters.langgraph._store import RopewalkStore
    from ropewalk.adapters.langgraph._store_records import (
        ItemVersion,
        StoreItem,
        StoreSearchItem,
    )
    from ropewalk.adapters.langgraph._store_view import StoreView
    from ropewalk.adapters.langgraph.classes import UnknownTypeWarning
    from ropewalk.adapters.langgraph.export_ import Exported, export_checkpoints
    from ropewalk.adapters.langgraph.import_ import Imported, import_checkpoints
    from ropewalk.adapters.langgraph.saver import RopewalkSaver

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
    "CoherenceAdapter": "_coherence",
    "CoherentStore": "_coherent",
    "Exported": "export_",
    "Imported": "import_",
    "ItemChange": "_coherent_watching",
    "ItemVersion": "_store_records",
    "LangGraphAdapter": "_adapter",
    "Adapter": "_adapter",
    "RopewalkSaver": "saver",
    "RopewalkStore": "_store",
    "StoreItem": "_store_records",
    "StoreSearchItem": "_store_records",
    "StoreView": "_store_view",
    "UnknownTypeWarning": "classes",
    "export_checkpoints": "export_",
    "import_checkpoints": "import_",
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
