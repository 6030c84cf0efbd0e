"""Ropewalk, the state layer for LLM agents.

Keeps every step of an agent as a version and stores only what changed.
"""

from __future__ import annotations

from ropewalk._version import __version__

TYPE_CHECKING = False  # That of `typing` takes longer to import than all of this.
if TYPE_CHECKING:
    from typing import Any

    from ropewalk import errors as errors
    from ropewalk.adapters import auto_adapt, detect_active_framework
    from ropewalk.codec import register
    from ropewalk.errors import (
        AmbiguousFrameworkError,
        Conflict,
        Corrupt,
        Full,
        InlineSizeExceeded,
        InvalidInput,
        MergeConflict,
        NoFrameworkDetectedError,
        NotAllowed,
        NotFound,
        NotStorable,
        RopewalkError,
        Unavailable,
        UnresolvedReferenceError,
    )
    from ropewalk.state import (
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
    from ropewalk.store import (
        CachedStore,
        FileStore,
        KVStore,
        MemoryStore,
        PostgresStore,
        RedisStore,
        S3Store,
        SqliteStore,
        Store,
        amigrate,
        migrate,
        open,  # noqa: A004
    )
    from ropewalk.threads import Message, ThreadCheckpointer, ThreadInfo
    from ropewalk.timeline import Checkpoint, Timeline

__all__ = [
    "ActionEvent",
    "AgentState",
    "AmbiguousFrameworkError",
    "CachedStore",
    "Checkpoint",
    "Conflict",
    "ContentRef",
    "Corrupt",
    "Event",
    "Externalized",
    "FailEvent",
    "FileStore",
    "Framework",
    "Full",
    "Inline",
    "InlineSizeExceeded",
    "InvalidInput",
    "KVStore",
    "Live",
    "MemoryStore",
    "MergeConflict",
    "Message",
    "NoFrameworkDetectedError",
    "NotAllowed",
    "NotFound",
    "NotStorable",
    "OutputEvent",
    "PostgresStore",
    "RedisStore",
    "RopewalkError",
    "Runtime",
    "S3Store",
    "SqliteStore",
    "Store",
    "SuccessEvent",
    "TaskStartEvent",
    "ThreadCheckpointer",
    "ThreadInfo",
    "Timeline",
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
    "events",
    "get_config",
    "migrate",
    "open",
    "record",
    "register",
    "task",
    "view",
]

# Loaded when they are first asked for, so that `import ropewalk` stays light.
_HOMES = {
    "ropewalk.adapters": ("auto_adapt", "detect_active_framework"),
    "ropewalk.codec": ("register",),
    "ropewalk.errors": (
        "AmbiguousFrameworkError",
        "Conflict",
        "Corrupt",
        "Full",
        "InlineSizeExceeded",
        "InvalidInput",
        "MergeConflict",
        "NoFrameworkDetectedError",
        "NotAllowed",
        "NotFound",
        "NotStorable",
        "RopewalkError",
        "Unavailable",
        "UnresolvedReferenceError",
    ),
    "ropewalk.store": (
        "CachedStore",
        "FileStore",
        "KVStore",
        "MemoryStore",
        "PostgresStore",
        "RedisStore",
        "S3Store",
        "SqliteStore",
        "Store",
        "amigrate",
        "migrate",
        "open",
    ),
    "ropewalk.state": (
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
    "ropewalk.threads": ("Message", "ThreadCheckpointer", "ThreadInfo"),
    "ropewalk.timeline": ("Checkpoint", "Timeline"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

_ELSEWHERE = {
    "ropewalk.codec": frozenset({"Codec", "Registry"}),
    "ropewalk.compat": frozenset({"Cache", "Disk", "Memory"}),
    "ropewalk.history": frozenset({"Branch", "Commit", "History"}),
    "ropewalk.store": frozenset({"Move"}),
    "ropewalk.tree": frozenset({"Map", "TreeWriter", "diff", "load", "merge"}),
}
"""Names that people look for here, and where they are."""


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "errors":
        return import_module("ropewalk.errors")
    home = _HOME_OF.get(name)
    if home is None:
        for elsewhere, names in _ELSEWHERE.items():
            if name in names:  # Raised as it is also by `from ropewalk import`.
                raise ImportError(f"{name} is in {elsewhere}: from {elsewhere} import {name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
