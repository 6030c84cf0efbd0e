"""What a floor reads that was told only what changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Change = tuple[tuple[str | int, ...], Any]
"""A path and what stands there from then on; without a path it is the whole value."""


def replayed(changes: Sequence[Change]) -> Any:
    """The value after all changes."""
    value: Any = [] if changes[0][0] else None
    for path, new in changes:
        value = _changed(value, path, new)
    return value


def _changed(value: Any, path: tuple[str | int, ...], new: Any) -> Any:
    if not path:
        return new
    part = value
    for step in path[:-1]:
        part = part[step]
    if isinstance(part, list) and path[-1] == len(part):
        part.append(new)
    else:
        part[path[-1]] = new
    return value
