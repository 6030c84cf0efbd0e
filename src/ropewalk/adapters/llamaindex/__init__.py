"""LlamaIndex on Ropewalk: workflows that survive a crash, typed state, the memory of agents."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ropewalk.adapters.installed import import_with

if TYPE_CHECKING:
    from ropewalk.adapters.llamaindex.chat import RopewalkChatStore
    from ropewalk.adapters.llamaindex.runtime import RopewalkRuntime
    from ropewalk.adapters.llamaindex.typed import ContextStore, LlamaIndexAdapter

__all__ = ["ContextStore", "LlamaIndexAdapter", "RopewalkChatStore", "RopewalkRuntime"]

_WITHOUT_LLAMAINDEX = {"ContextStore": "typed", "LlamaIndexAdapter": "typed"}
_WORKFLOWS = {"workflows": ("llama-index-workflows", "2.26")}
_CORE = {"llama_index": ("llama-index-core", "0.14.25")}


def __getattr__(name: str) -> Any:
    name = {"Adapter": "LlamaIndexAdapter"}.get(name, name)  # As `auto_adapt` looks it up.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _WITHOUT_LLAMAINDEX:
        return getattr(import_module(f"{__name__}.{_WITHOUT_LLAMAINDEX[name]}"), name)
    install = "pip install 'ropewalk[llamaindex]'"
    if name == "RopewalkChatStore":
        return getattr(import_with(f"{__name__}.chat", "LlamaIndex", _CORE, install), name)
    module = import_with(f"{__name__}.runtime", "LlamaIndex Workflows", _WORKFLOWS, install)
    return getattr(module, name)


def __dir__() -> list[str]:
    return __all__
