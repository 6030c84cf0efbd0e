"""Where two values differ, without a look at what they share, and how two lists do."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from ropewalk.codec import Codec, Path, default_codec, format_path
from ropewalk.tree.levels import View
from ropewalk.tree.nodes import Entry
from ropewalk.tree.objects import ObjectId, Reader
from ropewalk.tree.read import Container, Loader, kind_of, open_part, part_of, reading, reading_on


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


ChangeKind: TypeAlias = Literal["added", "removed", "changed", "reordered"]


class Change:
    """One difference.

    `path` is where: in a list, the index after the change, but of a removed item the
    index before it; in a set, the member. `old` and `new` are loaded when they are
    asked for; of a reordered dict they are its lists of keys.
    """

    __slots__ = ("_new", "_old", "kind", "path")

    def __init__(
        self, path: Path, kind: ChangeKind, old: Callable[[], Any], new: Callable[[], Any]
    ) -> None:
        self.path = path
        self.kind: ChangeKind = kind
        self._old = old
        self._new = new

    @property
    @reading
    def old(self) -> Any:
        """The value before; None if it was added."""
        return self._old()

    @property
    @reading
    def new(self) -> Any:
        """The value after; None if it was removed."""
        return self._new()

    def __repr__(self) -> str:
        return f"<Change {self.kind} {format_path(self.path)}>"


def diff(
    old: ObjectId, new: ObjectId, read: Reader, codec: Codec | None = None
) -> Iterator[Change]:
    """The differences between two values; what they share is not read."""
    if old == new:
        return iter(())
    differ = Differ(read, (default_codec if codec is None else codec).showing())
    return reading_on(differ.parts((), part_of(old, read), part_of(new, read)))


class Differ:
    """Finds what changed between two parts."""

    def __init__(self, read: Reader, codec: Codec) -> None:
        self._read = read
        self._codec = codec
        self._loader = Loader(read, codec)

    def _lazy(self, part: bytes) -> Callable[[], Any]:
        return lambda: self._loader.part(part)

    def _added(self, path: Path, part: bytes) -> Change:
        return Change(path, "added", lambda: None, self._lazy(part))

    def _removed(self, path: Path, part: bytes) -> Change:
        return Change(path, "removed", self._lazy(part), lambda: None)

    def parts(self, path: Path, old: bytes, new: bytes) -> Iterator[Change]:
        """The differences between two parts."""
        if old == new:
            return
        before, after = open_part(old, self._read), open_part(new, self._read)
        changed = Change(path, "changed", self._lazy(old), self._lazy(new))
        if before is None or after is None or kind_of(before.title) != kind_of(after.title):
            yield changed
        elif before.is_mapping:
            found = self._mappings(path, before, after)
            if before.title != after.title:  # Of two models only one may know what was set.
                yield next(found, changed)
            yield from found
        elif before.is_set:
            yield from self._sets(path, before, after)
        else:
            yield from self._sequences(path, before, after)

    def _mappings(self, path: Path, old: Container, new: Container) -> Iterator[Change]:
        left, right = differing(old.view, new.view, self._read)
        before = {entry.key: entry.body for entry in left}
        after = {entry.key: entry.body for entry in right}
        for key in sorted(before.keys() | after.keys()):
            inner = (*path, new.step(self._codec, key))
            if key not in after:
                yield self._removed(inner, before[key])
            elif key not in before:
                yield self._added(inner, after[key])
            else:
                yield from self.parts(inner, before[key], after[key])
        if old.order != new.order:
            yield from self._reordered(path, old, new)

    def _reordered(self, path: Path, old: Container, new: Container) -> Iterator[Change]:
        before, after = old.keys(self._read), new.keys(self._read)
        both = set(before) & set(after)
        if [key for key in before if key in both] != [key for key in after if key in both]:
            decode = self._codec.decode
            yield Change(
                path,
                "reordered",
                lambda: list(map(decode, before)),
                lambda: list(map(decode, after)),
            )

    def _sets(self, path: Path, old: Container, new: Container) -> Iterator[Change]:
        left, right = differing(old.view, new.view, self._read)
        for entry in left:
            yield self._removed((*path, self._loader.part(entry.body)), entry.body)
        for entry in right:
            yield self._added((*path, self._loader.part(entry.body)), entry.body)

    def _sequences(self, path: Path, old: Container, new: Container) -> Iterator[Change]:
        for hunk in hunks(old.view, new.view, self._read):
            paired = min(len(hunk.old), len(hunk.new))
            for at in range(paired):
                inner = (*path, hunk.new_start + at)
                yield from self.parts(inner, hunk.old[at].body, hunk.new[at].body)
            for at in range(paired, len(hunk.old)):
                yield self._removed((*path, hunk.start + at), hunk.old[at].body)
            for at in range(paired, len(hunk.new)):
                yield self._added((*path, hunk.new_start + at), hunk.new[at].body)
