"""Runs of items that changed, and how the changes of two sides combine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

_LARGEST: Final = 1_000_000
"""Two runs whose lengths multiply to more are not aligned but paired by position."""


class Hunk(NamedTuple):
    """The items `old` from `start` became the items `new` from `new_start`."""

    start: int
    old: list[Any]
    new_start: int
    new: list[Any]

    @property
    def stop(self) -> int:
        """Where the old items end."""
        return self.start + len(self.old)


class Step(NamedTuple):
    """One thing to do to ours: the items [start, stop) become `new`."""

    start: int
    stop: int
    new: list[Any]


class Overlap(Exception):
    """Both sides changed the same items."""


def split(old: Sequence[Any], new: Sequence[Any]) -> list[tuple[int, int, int, int]]:
    """The runs [low, high) of `old` that became [new_low, new_high) of `new`."""
    head, shortest = 0, min(len(old), len(new))
    while head < shortest and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < shortest - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    left, right = old[head : len(old) - tail], new[head : len(new) - tail]
    if not left and not right:
        return []
    if not left or not right or len(left) * len(right) > _LARGEST:
        return [(head, head + len(left), head, head + len(right))]
    return [
        (head + low, head + high, head + new_low, head + new_high)
        for low, high, new_low, new_high in _opcodes(left, right)
    ]


def _opcodes(old: Sequence[Any], new: Sequence[Any]) -> list[tuple[int, int, int, int]]:
    from difflib import SequenceMatcher

    matcher = SequenceMatcher(None, old, new, autojunk=False)
    return [code[1:] for code in matcher.get_opcodes() if code[0] != "equal"]


def hunks_of(old: list[Any], new: list[Any]) -> list[Hunk]:
    """How one list became the other."""
    return [Hunk(a, old[a:b], c, new[c:d]) for a, b, c, d in split(old, new)]


def single(hunks: Iterable[Hunk]) -> list[Hunk]:
    """The same hunks, with items that were replaced one by one apart."""
    apart: list[Hunk] = []
    for hunk in hunks:
        if len(hunk.old) != len(hunk.new):
            apart.append(hunk)
            continue
        apart += [
            Hunk(hunk.start + at, [old], hunk.new_start + at, [new])
            for at, (old, new) in enumerate(zip(hunk.old, hunk.new, strict=True))
        ]
    return apart


def combine(
    ours: list[Hunk], theirs: list[Hunk], settle: Callable[[Hunk, Hunk], list[Any]]
) -> list[Step]:
    """What theirs changes in ours, in ascending order.

    `settle` decides where both changed exactly the same items; it may raise Overlap.
    Raises Overlap where the changes meet in another way.
    """
    steps: list[Step] = []
    shift, at = 0, 0
    for their in theirs:
        while at < len(ours) and _before(ours[at], their):
            shift += len(ours[at].new) - len(ours[at].old)
            at += 1
        if at == len(ours) or _before(their, ours[at]):
            steps.append(Step(their.start + shift, their.stop + shift, their.new))
            continue
        our = ours[at]
        if (our.start, our.stop) != (their.start, their.stop):
            raise Overlap
        settled = settle(our, their)
        if settled != our.new:
            steps.append(Step(our.new_start, our.new_start + len(our.new), settled))
    return steps


def _before(one: Hunk, other: Hunk) -> bool:
    """Whether a hunk ends before another starts; two insertions in one place meet."""
    if one.start == one.stop == other.start == other.stop:
        return False
    return one.stop <= other.start


def same_or_overlap(ours: Hunk, theirs: Hunk) -> list[Any]:
    """Settle equal changes only."""
    if ours.new != theirs.new:
        raise Overlap
    return ours.new
