"""The shortest way from one list to another, by Myers' greedy algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def kept_items(old: Sequence[Any], new: Sequence[Any], most: int) -> list[tuple[int, int]] | None:
    """The positions in both lists of the items that stay where fewest are removed and added.

    None where it would take more than `most` removed and added items: the work grows
    with their square.
    """
    # On diagonal k, reach[k] is the furthest position in `old` that some edits lead to.
    reach = {1: 0}
    history: list[dict[int, int]] = []
    for edits in range(min(len(old) + len(new), most) + 1):
        history.append(dict(reach))
        for diagonal in range(-edits, edits + 1, 2):
            at = _step(reach, diagonal, edits)
            at = reach[diagonal] = _slide(old, new, at, at - diagonal)
            if at >= len(old) and at - diagonal >= len(new):
                return _trace(history, len(old), len(new))
    return None


def _step(reach: dict[int, int], diagonal: int, edits: int) -> int:
    """Where one edit more begins on a diagonal: after adding or after removing an item."""
    if _adds(reach, diagonal, edits):
        return reach[diagonal + 1]
    return reach[diagonal - 1] + 1


def _slide(old: Sequence[Any], new: Sequence[Any], at: int, new_at: int) -> int:
    """Go along equal items as far as they lead."""
    while at < len(old) and new_at < len(new) and old[at] == new[new_at]:
        at, new_at = at + 1, new_at + 1
    return at


def _trace(history: list[dict[int, int]], at: int, new_at: int) -> list[tuple[int, int]]:
    """Walk back from the end, and note the equal items on the way."""
    kept: list[tuple[int, int]] = []
    for edits in range(len(history) - 1, -1, -1):
        reach, diagonal = history[edits], at - new_at
        start = _step(reach, diagonal, edits)
        while at > start:
            at, new_at = at - 1, new_at - 1
            kept.append((at, new_at))
        if edits:
            added = _adds(reach, diagonal, edits)
            at, new_at = (at, new_at - 1) if added else (at - 1, new_at)
    return kept[::-1]


def _adds(reach: dict[int, int], diagonal: int, edits: int) -> bool:
    """Whether the best way to a diagonal ends with an added item, not with a removed one."""
    return diagonal == -edits or (diagonal != edits and reach[diagonal - 1] < reach[diagonal + 1])
