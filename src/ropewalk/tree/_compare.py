"""Where two trees differ, without a look at what they share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from ropewalk.tree._layout import Entry
from ropewalk.tree._levels import View
from ropewalk.tree._objects import Reader
from ropewalk.tree._runs import Hunk, split, split_nodes


def differing(old: View, new: View, read: Reader) -> tuple[list[Entry], list[Entry]]:
    """The entries of either mapping or set that are not in the other as they are."""
    left, left_level = old.top.entries, old.height
    right, right_level = new.top.entries, new.height
    while True:
        if left_level == right_level:
            shared = set(left) & set(right)
            left = [entry for entry in left if entry not in shared]
            right = [entry for entry in right if entry not in shared]
            if left_level == 0:
                return left, right
        at = max(left_level, right_level)
        if left_level == at:
            left, left_level = _expand(old, at, left, read), at - 1
        if right_level == at:
            right, right_level = _expand(new, at, right, read), at - 1


def _expand(view: View, level: int, entries: Sequence[Entry], read: Reader) -> list[Entry]:
    """The entries of the nodes that index entries of a level point to."""
    found = read([entry.body for entry in entries])
    return [entry for node in found for entry in view.layout.read(level - 1, node)]


def hunks(old: View, new: View, read: Reader) -> Iterator[Hunk]:
    """How one sequence became the other, from left to right."""
    left, right = old.top.entries, new.top.entries
    left_level, right_level = old.height, new.height
    while left_level > right_level:
        left, left_level = _expand(old, left_level, left, read), left_level - 1
    while right_level > left_level:
        right, right_level = _expand(new, right_level, right, read), right_level - 1
    return _align(old, left_level, Hunk(0, left, 0, right), read)


def _align(view: View, level: int, block: Hunk, read: Reader) -> Iterator[Hunk]:
    bodies = [entry.body for entry in block.old], [entry.body for entry in block.new]
    starts, new_starts = _starts(block.start, block.old), _starts(block.new_start, block.new)
    for low, high, new_low, new_high in split_nodes(*bodies) if level else split(*bodies):
        start, new_start = starts[low], new_starts[new_low]
        inner = Hunk(start, block.old[low:high], new_start, block.new[new_low:new_high])
        if level == 0:
            yield inner
        else:
            old = _expand(view, level, inner.old, read)
            new = _expand(view, level, inner.new, read)
            yield from _align(view, level - 1, Hunk(start, old, new_start, new), read)


def _starts(first: int, entries: list[Entry]) -> list[int]:
    """The position of each entry, and of the end."""
    return list(accumulate([entry.weight for entry in entries], initial=first))
