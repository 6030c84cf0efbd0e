"""Reading a run of a mapping's pairs, from either end, a few leaves at a time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ropewalk.codec import Codec
from ropewalk.errors import FormatError
from ropewalk.tree._layout import PAIRS, Entry
from ropewalk.tree._levels import Place, View
from ropewalk.tree._load import Loader
from ropewalk.tree._objects import Object, Reader
from ropewalk.tree._parts import may_hold_links

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
