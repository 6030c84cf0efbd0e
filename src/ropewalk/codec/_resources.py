"""Objects that stand for something outside: connections, cursors, files, locks, generators.

They can never be stored, and whoever tries is told what to store instead.
"""

from __future__ import annotations

from typing import Any, Final

_MODULES: Final = frozenset(
    "_thread asyncio concurrent multiprocessing select socket ssl subprocess threading".split()
)
_NAMES: Final = ("client", "connection", "cursor", "engine", "pool", "session")
_METHODS: Final = ("fileno", "fetchall", "acquire", "__next__", "__anext__", "send")

INSTEAD: Final = (
    "a live resource, not data; use it within one step and store what it gives, such as "
    "cursor.fetchall() or list(generator), or keep it in a Live state"
)
"""What whoever tries is told."""


def is_resource(value: Any) -> bool:
    """Whether an object, which cannot be stored, is one that is used and not kept."""
    cls = type(value)
    if isinstance(value, type):
        return False
    if cls.__module__.partition(".")[0] in _MODULES:
        return True
    if cls.__name__.lower().endswith(_NAMES) and hasattr(cls, "close"):
        return True
    return any(hasattr(cls, method) for method in _METHODS)
