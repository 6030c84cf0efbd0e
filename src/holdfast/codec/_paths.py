"""Paths inside a value."""

from __future__ import annotations

from typing import Any, TypeAlias

Path: TypeAlias = tuple[Any, ...]
"""Keys, indexes and fields from the top of a value to a place inside it."""

_LONGEST = 40
_SHOWN = 12


class Field(str):
    """A step of a path that is a field of an object; equal to its name."""

    __slots__ = ()


def format_path(path: Path, top: str = "value") -> str:
    """A path as Python would write it: `value["docs"][3].meta`."""
    if len(path) > _SHOWN:
        path = (*path[: _SHOWN // 2], ..., *path[-_SHOWN // 2 :])
    return top + "".join(map(_format_step, path))


def _format_step(step: Any) -> str:
    if isinstance(step, Field):
        return f".{step}"
    if step is ...:
        return "..."
    if type(step) is str:
        text = step if len(step) <= _LONGEST else step[: _LONGEST - 3] + "..."
        escaped: str = text.encode("unicode_escape").decode()
        return '["' + escaped.replace('"', '\\"') + '"]'
    try:
        shown = repr(step)
    except Exception:  # noqa: BLE001 - a broken repr must not hide the error that names it
        shown = f"<{type(step).__qualname__}>"
    return f"[{shown if len(shown) <= _LONGEST else shown[: _LONGEST - 3] + '...'}]"
