"""Holdfast, the state layer for LLM agents.

Keeps every step of an agent as a version and stores only what changed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast._version import __version__
from holdfast.errors import (
    AmbiguousFrameworkError,
    Conflict,
    Corrupt,
    Full,
    HoldfastError,
    InlineSizeExceeded,
    InvalidInput,
    MergeConflict,
    NoFrameworkDetectedError,
    NotAllowed,
    NotFound,
    NotStorable,
    Unavailable,
    UnresolvedReferenceError,
)

if TYPE_CHECKING:
    from holdfast.adapters import auto_adapt, detect_active_framework
    from holdfast.codec import Codec, Registry, register
    from holdfast.history import Branch, History
    from holdfast.state import (
        ActionEvent,
        AgentState,
        ContentRef,
        Event,
        Externalized,
        FailEvent,
        Framework,
        Inline,
        Live,
        OutputEvent,
        Runtime,
        SuccessEvent,
        TaskStartEvent,
        Versioned,
        configure,
        create_runtime,
        current_state,
        events,
        get_config,
        record,
        task,
        view,
    )
    from holdfast.store import (
        Cache,
        CachedStore,
        Disk,
        FileStore,
        KVStore,
        Memory,
        MemoryStore,
        Move,
        PostgresStore,
        RedisStore,
        S3Store,
        SqliteStore,
        Store,
        amigrate,
        migrate,
        open,  # noqa: A004
    )
    from holdfast.threads import Message, ThreadCheckpointer, ThreadInfo
    from holdfast.timeline import Checkpoint, Timeline
    from holdfast.tree import Map, TreeWriter, diff, get, load, merge, put

__all__ = [
    "ActionEvent",
    "AgentState",
    "AmbiguousFrameworkError",
    "Branch",
    "Cache",
    "CachedStore",
    "Checkpoint",
    "Codec",
    "Conflict",
    "ContentRef",
    "Corrupt",
    "Disk",
    "Event",
    "Externalized",
    "FailEvent",
    "FileStore",
    "Framework",
    "Full",
    "History",
    "HoldfastError",
    "Inline",
    "InlineSizeExceeded",
    "InvalidInput",
    "KVStore",
    "Live",
    "Map",
    "Memory",
    "MemoryStore",
    "MergeConflict",
    "Message",
    "Move",
    "NoFrameworkDetectedError",
    "NotAllowed",
    "NotFound",
    "NotStorable",
    "OutputEvent",
    "PostgresStore",
    "RedisStore",
    "Registry",
    "Runtime",
    "S3Store",
    "SqliteStore",
    "Store",
    "SuccessEvent",
    "TaskStartEvent",
    "ThreadCheckpointer",
    "ThreadInfo",
    "Timeline",
    "TreeWriter",
    "Unavailable",
    "UnresolvedReferenceError",
    "Versioned",
    "__version__",
    "amigrate",
    "auto_adapt",
    "configure",
    "create_runtime",
    "current_state",
    "detect_active_framework",
    "diff",
    "events",
    "get",
    "get_config",
    "load",
    "merge",
    "migrate",
    "open",
    "put",
    "record",
    "register",
    "task",
    "view",
]

# Loaded when they are first asked for, so that `import holdfast` stays light.
_HOMES = {
    "holdfast.adapters": ("auto_adapt", "detect_active_framework"),
    "holdfast.codec": ("Codec", "Registry", "register"),
    "holdfast.history": ("Branch", "History"),
    "holdfast.store": (
        "Cache",
        "CachedStore",
        "Disk",
        "FileStore",
        "KVStore",
        "Memory",
        "MemoryStore",
        "Move",
        "PostgresStore",
        "RedisStore",
        "S3Store",
        "SqliteStore",
        "Store",
        "amigrate",
        "migrate",
        "open",
    ),
    "holdfast.state": (
        "ActionEvent",
        "AgentState",
        "ContentRef",
        "Event",
        "Externalized",
        "FailEvent",
        "Framework",
        "Inline",
        "Live",
        "OutputEvent",
        "Runtime",
        "SuccessEvent",
        "TaskStartEvent",
        "Versioned",
        "configure",
        "create_runtime",
        "current_state",
        "events",
        "get_config",
        "record",
        "task",
        "view",
    ),
    "holdfast.threads": ("Message", "ThreadCheckpointer", "ThreadInfo"),
    "holdfast.timeline": ("Checkpoint", "Timeline"),
    "holdfast.tree": ("Map", "TreeWriter", "diff", "get", "load", "merge", "put"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
