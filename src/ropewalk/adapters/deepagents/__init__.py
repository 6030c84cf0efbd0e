"""Deep Agents on Ropewalk: files of which each change is a version, forks, and typed state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ropewalk.adapters.installed import import_with

if TYPE_CHECKING:
    from ropewalk.adapters.deepagents.backend import RopewalkBackend
    from ropewalk.adapters.deepagents.forks import FileVersions, fork_thread, thread_branch
    from ropewalk.adapters.deepagents.typed import DeepAgentsAdapter

__all__ = [
    "DeepAgentsAdapter",
    "FileVersions",
    "RopewalkBackend",
    "fork_thread",
    "thread_branch",
]

_MODULES = {
    "DeepAgentsAdapter": "typed",
    "FileVersions": "forks",
    "RopewalkBackend": "backend",
    "fork_thread": "forks",
    "thread_branch": "forks",
}
_PACKAGES = {
    "deepagents": ("deepagents", "0.7.32"),
    "langchain": ("langchain", "1"),
    "langgraph": ("langgraph", "1.2"),
}


def __getattr__(name: str) -> Any:
    name = {"Adapter": "DeepAgentsAdapter"}.get(name, name)  # As `auto_adapt` looks it up.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = f"{__name__}.{_MODULES[name]}"
    install = "pip install 'ropewalk[deepagents]'"
    return getattr(import_with(module, "Deep Agents", _PACKAGES, install), name)


def __dir__() -> list[str]:
    return __all__
