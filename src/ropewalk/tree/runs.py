"""Runs of items that changed, and how the changes of two sides combine."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias


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


_MOST_EDITS: Final = 500
_MOST_STEPS: Final = 4_000_000
"""Beyond so many edits, or steps along the items, the shortest way is not looked for."""


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

    @property
    def grows(self) -> bool:
        """Whether there are more items than before."""
        return len(self.new) > len(self.old)


class Step(NamedTuple):
    """One thing to do to ours: the items [start, stop) become those of theirs.

    Where ours changed exactly the same items, its change is `ours`.
    """

    start: int
    stop: int
    theirs: Hunk
    ours: Hunk | None


class Overlap(Exception):
    """Both sides changed the same items."""


Run: TypeAlias = tuple[int, int, int, int]
"""Items [low, high) that became [new_low, new_high)."""


def split(old: Sequence[Any], new: Sequence[Any]) -> list[Run]:
    """The runs of `old` that became others in `new`."""
    head, left, right = _trimmed(old, new)
    runs = _shortest(left, right)
    return _moved(_anchored(left, right, _between) if runs is None else runs, head, head)


def split_nodes(old: Sequence[Any], new: Sequence[Any]) -> list[Run]:
    """The same for nodes of a sequence, which stand for long runs of items.

    Nodes that are there several times say little about what became of which.
    """
    head, left, right = _trimmed(old, new)
    return _moved(_anchored(left, right, _whole_but_ends), head, head)


def _trimmed(old: Sequence[Any], new: Sequence[Any]) -> tuple[int, Sequence[Any], Sequence[Any]]:
    """How many items are the same at the start, and what is left without those at the end."""
    head, shortest = 0, min(len(old), len(new))
    while head < shortest and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < shortest - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    return head, old[head : len(old) - tail], new[head : len(new) - tail]


def _moved(runs: list[Run], by: int, new_by: int) -> list[Run]:
    return [(by + a, by + b, new_by + c, new_by + d) for a, b, c, d in runs]


def _anchored(
    old: Sequence[Any],
    new: Sequence[Any],
    between: Callable[[Sequence[Any], Sequence[Any]], list[Run]],
) -> list[Run]:
    """The runs between items that each side has once and that stand in the same order."""
    runs: list[Run] = []
    low = new_low = 0
    for high, new_high in [*_anchors(old, new), (len(old), len(new))]:
        runs += _moved(between(old[low:high], new[new_low:new_high]), low, new_low)
        low, new_low = high + 1, new_high + 1
    return runs


def _anchors(old: Sequence[Any], new: Sequence[Any]) -> list[tuple[int, int]]:
    """The longest chain of pairs of positions at which such items stand."""
    counts, new_counts = Counter(old), Counter(new)
    places = {item: at for at, item in enumerate(new) if new_counts[item] == 1}
    # Patience: each pile ends with the least position that ends a chain of its length.
    ends: list[int] = []
    links: list[_Link] = []
    for at, item in enumerate(old):
        if counts[item] == 1 and item in places:
            pile = bisect_left(ends, places[item])
            ends[pile : pile + 1] = [places[item]]
            links[pile : pile + 1] = [_Link(at, places[item], links[pile - 1] if pile else None)]
    chain: list[tuple[int, int]] = []
    link = links[-1] if links else None
    while link is not None:
        chain.append((link.at, link.place))
        link = link.before
    return chain[::-1]


class _Link(NamedTuple):
    at: int
    place: int
    before: _Link | None


def _whole(old: Sequence[Any], new: Sequence[Any]) -> list[Run]:
    return [(0, len(old), 0, len(new))] if old or new else []


def _whole_but_ends(old: Sequence[Any], new: Sequence[Any]) -> list[Run]:
    head, left, right = _trimmed(old, new)
    return _moved(_whole(left, right), head, head)


def _between(old: Sequence[Any], new: Sequence[Any]) -> list[Run]:
    runs = _shortest(old, new)
    return _whole_but_ends(old, new) if runs is None else runs


def _shortest(old: Sequence[Any], new: Sequence[Any]) -> list[Run] | None:
    """The runs of the shortest way, or None if that is too long to look for."""
    if not old or not new:
        return _whole(old, new)
    kept = kept_items(old, new, min(_MOST_EDITS, _MOST_STEPS // (len(old) + len(new))))
    if kept is None:
        return None
    runs: list[Run] = []
    low = new_low = 0
    for at, new_at in [*kept, (len(old), len(new))]:
        if at > low or new_at > new_low:
            runs.append((low, at, new_low, new_at))
        low, new_low = at + 1, new_at + 1
    return runs


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


def combine(ours: list[Hunk], theirs: list[Hunk]) -> list[Step]:
    """What theirs changes in ours, in ascending order.

    Raises Overlap where the changes meet, but not in exactly the same items.
    """
    steps: list[Step] = []
    shift, at = 0, 0
    for their in theirs:
        while at < len(ours) and _before(ours[at], their):
            shift += len(ours[at].new) - len(ours[at].old)
            at += 1
        if at == len(ours) or _before(their, ours[at]):
            steps.append(Step(their.start + shift, their.stop + shift, their, None))
            continue
        our = ours[at]
        if (our.start, our.stop) != (their.start, their.stop):
            raise Overlap
        steps.append(Step(our.new_start, our.new_start + len(our.new), their, our))
    return steps


def _before(one: Hunk, other: Hunk) -> bool:
    """Whether a hunk ends before another starts.

    Two that touch and both grow meet: both may have inserted in the same place.
    """
    if one.stop == other.start and one.grows and other.grows:
        return False
    return one.stop <= other.start


def new_items(step: Step) -> list[Any]:
    """What a step puts in place; raises Overlap if the sides changed it differently."""
    if step.ours is not None and step.ours.new != step.theirs.new:
        raise Overlap
    return step.theirs.new
