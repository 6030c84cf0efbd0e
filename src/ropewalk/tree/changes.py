"""Where two values differ, without a look at what they share."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Literal, NamedTuple, TypeAlias

from ropewalk.codec import Codec, Path, default_codec, format_path
from ropewalk.errors import FormatError
from ropewalk.tree.container import Container, kind_of, open_part, part_of
from ropewalk.tree.levels import Place, View
from ropewalk.tree.nodes import PAIRS, Entry, may_hold_links
from ropewalk.tree.objects import Object, ObjectId, Reader
from ropewalk.tree.read import Loader, reading, reading_on
from ropewalk.tree.runs import Hunk, split, split_nodes


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


MOST_TOGETHER = 64
"""How many leaves are fetched at once, at most: a page of a few hundred KB."""


class Run(NamedTuple):
    """The pairs at the positions [start, stop), from the last one on if `reverse`."""

    start: int
    stop: int
    reverse: bool = False
    first: int = 1
    """How many leaves are fetched at first; each time after that, twice as many."""


class PairReader:
    """Reads pairs of a map and keeps none of them."""

    def __init__(self, view: View, read: Reader, codec: Codec) -> None:
        self._view = view
        self._read = read
        self._codec = codec
        self._loader = Loader(read, codec)

    def pairs(self, run: Run) -> Iterator[tuple[Any, Any]]:
        """Keys and values of a run; those of one leaf are decoded together.

        Where large values stand apart, each is fetched when it is asked for, unless all
        of the run were wanted at once.
        """
        for place in self._leaves(run):
            low = max(run.start - place.start, 0)
            entries = place.entries[low : run.stop - place.start]
            if run.reverse:
                entries = entries[::-1]
            lazy = run.first < MOST_TOGETHER
            if lazy and any(may_hold_links(entry.body) for entry in entries):
                for entry in entries:
                    yield from self._decoded([entry])
            else:
                yield from self._decoded(entries)

    def picked(self, keys: Sequence[bytes]) -> Iterator[tuple[Any, Any]]:
        """Keys and values of those of the encoded keys, sorted, that are there.

        Level by level, so that one step reads what all of them need.
        """
        nodes = [(self._view.top.entries, list(keys))]
        for level in range(self._view.height - 1, -1, -1):
            wanted = [pair for entries, some in nodes for pair in _children(entries, some)]
            found = self._read([entry.body for entry, _ in wanted])
            nodes = [
                (self._view.layout.read(level, node), some)
                for (_, some), node in zip(wanted, found, strict=True)
            ]
        chosen: list[Entry] = []
        for entries, some in nodes:
            known = set(some)
            chosen += [entry for entry in entries if entry.key in known]
        yield from self._decoded(chosen)

    def _decoded(self, entries: list[Entry]) -> Iterator[tuple[Any, Any]]:
        flat = self._loader.part(PAIRS.encode(0, entries))
        for key, value in zip(flat[::2], flat[1::2], strict=True):
            yield checked_key(key, self._codec), value

    def _leaves(self, run: Run) -> Iterator[Place]:
        if run.start >= run.stop:
            return
        if not self._view.height:
            yield self._view.top
            return
        together = run.first
        start, stop = run.start, run.stop
        while start < stop:
            asked = self._together(start, stop, run.reverse, together)
            found = self._read([entry.body for _, entry in asked])
            for (at, entry), leaf in zip(asked, found, strict=True):
                yield self._place(at, entry, leaf)
            at, entry = asked[-1]
            if run.reverse:
                stop = at
            else:
                start = at + entry.weight
            together = min(together * 2, MOST_TOGETHER)

    def _together(self, start: int, stop: int, reverse: bool, most: int) -> list[tuple[int, Entry]]:
        """Where the next leaves over [start, stop) begin, and their entries in one index."""
        index = self._view.node_at(1, stop - 1 if reverse else start)
        low = bisect_right(index.bounds, max(start - index.start, 0))
        high = bisect_right(index.bounds, stop - 1 - index.start) + 1
        chosen = list(range(low, min(high, len(index.entries))))
        chosen = chosen[::-1][:most] if reverse else chosen[:most]
        befores = [index.bounds[at - 1] if at else 0 for at in chosen]
        return [
            (index.start + before, index.entries[at])
            for at, before in zip(chosen, befores, strict=True)
        ]

    def _place(self, start: int, entry: Entry, leaf: Object) -> Place:
        entries = self._view.layout.read(0, leaf)
        if len(entries) != entry.weight:
            raise FormatError(f"node {leaf.id.hex()[:12]} does not hold what its index says")
        return Place(start, leaf.id, entries, [])


def _children(entries: list[Entry], keys: list[bytes]) -> list[tuple[Entry, list[bytes]]]:
    """The nodes under which keys would stand, each with its keys."""
    found: dict[int, list[bytes]] = {}
    for key in keys:
        at = bisect_right(entries, key, key=lambda entry: entry.key) - 1
        if at >= 0:
            found.setdefault(at, []).append(key)
    return [(entries[at], some) for at, some in found.items()]


def checked_key(key: Any, codec: Codec) -> Any:
    """Refuse a key that Python cannot have as one, or only by running code of its class."""
    if type(key) is not str:
        codec.decoder().check_keys([key])
    try:
        hash(key)
    except Exception as exc:
        raise FormatError(f"a stored key of a map is malformed: {exc}") from exc
    return key


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


def _nothing() -> None:
    return None


def _any(found: Iterator[Change], otherwise: Change) -> Iterator[Change]:
    yield next(found, otherwise)
    yield from found


class Differ:
    """Finds what changed between two parts."""

    def __init__(self, read: Reader, codec: Codec) -> None:
        self._read = read
        self._codec = codec
        self._loader = Loader(read, codec)

    def _lazy(self, part: bytes) -> Callable[[], Any]:
        return lambda: self._loader.part(part)

    def _added(self, path: Path, part: bytes) -> Change:
        return Change(path, "added", _nothing, self._lazy(part))

    def _removed(self, path: Path, part: bytes) -> Change:
        return Change(path, "removed", self._lazy(part), _nothing)

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
            # Of two models only one may know that a field was set.
            yield from found if before.title == after.title else _any(found, changed)
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
