"""The differences between two states, for programs and for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import unified_diff
from pprint import pformat
from typing import Any

from ropewalk.codec import Path, format_path
from ropewalk.tree import Change

_WIDTH = 100


@dataclass(frozen=True)
class Diff:
    """What changed between two states: deep, by path."""

    changes: tuple[Change, ...]

    @property
    def added(self) -> dict[Path, Any]:
        """What is only in the second, by its path there."""
        return {one.path: one.new for one in self.changes if one.kind == "added"}

    @property
    def removed(self) -> dict[Path, Any]:
        """What is only in the first, by its path there."""
        return {one.path: one.old for one in self.changes if one.kind == "removed"}

    @property
    def changed(self) -> dict[Path, tuple[Any, Any]]:
        """What has another value, with both."""
        return {one.path: (one.old, one.new) for one in self.changes if one.kind == "changed"}

    @property
    def reordered(self) -> list[Path]:
        """Dicts whose keys are the same in another order."""
        return [one.path for one in self.changes if one.kind == "reordered"]

    def __bool__(self) -> bool:
        return bool(self.changes)

    def __len__(self) -> int:
        return len(self.changes)

    def __iter__(self) -> Iterator[Change]:
        return iter(self.changes)

    def to_dict(self) -> list[dict[str, Any]]:
        """The changes as plain values."""
        return [
            {
                "kind": one.kind,
                "path": format_path(one.path, "state"),
                **({} if one.kind in ("added", "reordered") else {"old": one.old}),
                **({} if one.kind in ("removed", "reordered") else {"new": one.new}),
            }
            for one in self.changes
        ]

    def __str__(self) -> str:
        return "\n".join(line for one in self.changes for line in shown_lines(one))


def shown_lines(change: Change, root: str = "state") -> Iterable[str]:
    """A change for people; `root` is what the value that its path is in is called."""
    path = format_path(change.path, root)
    if change.kind == "reordered":
        return [f"~ {path}: other order of keys"]
    if change.kind == "added":
        return _shown(f"+ {path}: ", change.new)
    if change.kind == "removed":
        return _shown(f"- {path}: ", change.old)
    if isinstance(change.old, str) and isinstance(change.new, str) and "\n" in change.old:
        return [f"~ {path}:", *_unified(change.old, change.new)]
    return [*_shown(f"- {path}: ", change.old), *_shown(f"+ {path}: ", change.new)]


def _unified(old: str, new: str) -> list[str]:
    lines = unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=2)
    return [f"    {line}" for line in lines if not line.startswith(("---", "+++"))]


def _shown(head: str, value: Any) -> list[str]:
    try:
        first, *more = pformat(value, width=_WIDTH, sort_dicts=False).splitlines()
    except ValueError:  # Python writes no number of more than 4,300 digits.
        first, more = "(holds a number that is too long to show)", []
    return [head + first, *(f"{head[0]}     {line}" for line in more)]
