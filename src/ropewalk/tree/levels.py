"""Editing a tree of nodes: cost follows change.

All parts of a container have positions from 0. An edit replaces a span of positions
by new entries. At each level the nodes that the span touches are cut anew, from the
start of the first one until a cut falls where an old node ended; everything else
stays. The nodes that came out replace a span one level up, and so on to the top.

Most edits change one leaf, which then ends at the cut where it did. So nothing is cut, and
only the nodes on the way to it are written anew.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, groupby
from operator import itemgetter
from typing import NamedTuple

from ropewalk.errors import FormatError
from ropewalk.tree.nodes import INDEXED_SIZE, NODE_MIN, Entry, Layout, cuts_after, index_entry
from ropewalk.tree.objects import Object, ObjectId, Reader, make_object

_SHORT = 2
"""How many entries at the end of a node may change before it is counted and written anew."""

_MOST_FETCHED = 128
"""Of how many nodes the entries are handed on from one view to the next."""


class Span(NamedTuple):
    """The positions [start, stop) become `entries`."""

    start: int
    stop: int
    entries: Sequence[Entry]


def in_turn(spans: list[Span]) -> list[Span]:
    """Spans in ascending order, with those that insert in one place as one."""
    if len(spans) == 1:
        return spans
    spans.sort(key=lambda span: (span.start, span.stop, [entry.key for entry in span.entries]))
    joined: list[Span] = []
    for at, together in groupby(spans, key=lambda span: (span.start, span.stop)):
        several = list(together)
        if len(several) > 1:
            assert at[0] == at[1], "two changes of one key"
            entries = [entry for span in several for entry in span.entries]
            several = [Span(*at, entries)]
        joined += several
    return joined


def differing_spans(olds: list[Entry], parts: list[bytes], at: int) -> list[Span]:
    """The spans of a sequence whose parts, from a position on, became others."""
    if len(olds) == len(parts):
        return renewed_spans(olds, parts, at)
    low, high, shift = 0, len(parts), len(parts) - len(olds)
    while low < min(high, high - shift) and parts[low] == olds[low].body:
        low += 1
    while high > low and high - shift > low and parts[high - 1] == olds[high - 1 - shift].body:
        high -= 1
    return [Span(at + low, at + high - shift, [Entry(b"", part) for part in parts[low:high]])]


def renewed_spans(olds: list[Entry], parts: Iterable[bytes], at: int) -> list[Span]:
    """The spans of parts that were replaced one by one."""
    return [
        Span(place, place + 1, [Entry(old.key, part)])
        for place, (old, part) in enumerate(zip(olds, parts, strict=True), at)
        if part != old.body
    ]


def keyed_spans(olds: list[Entry], news: list[Entry], at: int) -> list[Span]:
    """The spans of a run of a mapping whose entries, sorted by key, became others."""
    spans: list[Span] = []
    i = j = 0
    while i < len(olds) or j < len(news):
        if j == len(news) or (i < len(olds) and olds[i].key < news[j].key):
            spans.append(Span(at + i, at + i + 1, []))
            i += 1
        elif i < len(olds) and olds[i].key == news[j].key:
            if olds[i].body != news[j].body:
                spans.append(Span(at + i, at + i + 1, [news[j]]))
            i, j = i + 1, j + 1
        else:
            stop = len(news) if i == len(olds) else bisect_left(news, olds[i].key, j, key=_key_of)
            spans.append(Span(at + i, at + i, news[j:stop]))
            j = stop
    return spans


class Node(NamedTuple):
    """What is known of a node."""

    entries: list[Entry]
    bounds: list[int]
    filled: int | None = None
    """How full it is, as cuts count it."""
    body: bytes | None = None
    """Its entries as bytes."""


class Place(NamedTuple):
    """A node where it stands: its first position and its entries."""

    start: int
    id: ObjectId | None
    entries: list[Entry]
    bounds: list[int]
    filled: int | None = None
    body: bytes | None = None

    @property
    def stop(self) -> int:
        """The position behind its last entry."""
        return self.start + (self.bounds[-1] if self.bounds else 0)


class Prefix(NamedTuple):
    """The first entries of a node that are those of an old one, and their bytes."""

    entries: int
    body: bytes


class Group(NamedTuple):
    """Entries that make one new node."""

    entries: list[Entry]
    filled: int
    prefix: Prefix | None = None

    def body(self, layout: Layout, level: int) -> bytes:
        """The entries as bytes. Of a node that only grew, the old ones are not written anew."""
        if self.prefix is None:
            return layout.body(level, self.entries)
        return self.prefix.body + layout.body(level, self.entries[self.prefix.entries :])


class Region(NamedTuple):
    """Old nodes over the positions [start, stop) and the groups that replace them."""

    start: int
    stop: int
    groups: list[Group]
    olds: list[Place]


class View:
    """The nodes of one container, fetched as they are needed.

    The entries of nodes that were just made may be given, so that nobody reads them.
    """

    def __init__(
        self,
        layout: Layout,
        height: int,
        entries: list[Entry],
        read: Reader,
        made: Mapping[ObjectId, Node] | None = None,
        top: Node | None = None,
    ) -> None:
        self.layout = layout
        self.height = height
        self.top = Place(0, None, *(top or Node(entries, _bounds(entries))))
        self._read = read
        self._fetched: dict[ObjectId, Node] = dict(made or {})

    def inherit(self, other: View) -> None:
        """Know the nodes that another view fetched: those of a tree with the same beginnings."""
        if len(other._fetched) <= _MOST_FETCHED:
            self._fetched.update(other._fetched)

    def fetch(self, keys: Sequence[bytes]) -> None:
        """Read the nodes on the way to keys, those of one level together."""
        known, pending = self._fetched, [(self.top.entries, keys)]
        for level in range(self.height - 1, -1, -1):
            below: dict[ObjectId, list[bytes]] = {}
            for entries, some in pending:
                for key in some:
                    index = max(_bisect_key(entries, key) - 1, 0)
                    below.setdefault(entries[index].body, []).append(key)
            absent = [id for id in below if id not in known]
            for id, found in zip(absent, self._read(absent) if absent else [], strict=True):
                made = self.layout.read(level, found)
                known[id] = Node(made, _bounds(made))
            pending = [(known[id].entries, some) for id, some in below.items()]

    @property
    def total(self) -> int:
        """How many parts (of chunks: bytes) there are."""
        return self.top.stop

    def node_at(self, level: int, position: int) -> Place:
        """The node at a level over a position; past the end, the last node."""
        place = self.top
        for below in range(self.height - 1, level - 1, -1):
            index = min(bisect_right(place.bounds, position - place.start), len(place.entries) - 1)
            start = place.start + (place.bounds[index - 1] if index else 0)
            place = self._child(below, start, place.entries[index])
        return place

    def _child(self, level: int, start: int, entry: Entry) -> Place:
        known = self._fetched.get(entry.body)
        if known is None:
            entries = self._read_node(level, entry.body)
            known = self._fetched[entry.body] = Node(entries, _bounds(entries))
        if not known.bounds or known.bounds[-1] != entry.weight:
            raise FormatError(f"node {entry.body.hex()[:12]} does not hold what its index says")
        return Place(start, entry.body, *known)

    def _read_node(self, level: int, id: ObjectId) -> list[Entry]:
        (found,) = self._read([id])
        return self.layout.read(level, found)

    def locate(self, key: bytes) -> tuple[int, Entry | None]:
        """Where a key is, or where it would be, and its entry if it is there."""
        place = self.top
        for below in range(self.height - 1, -1, -1):
            index = max(_bisect_key(place.entries, key) - 1, 0)
            start = place.start + (place.bounds[index - 1] if index else 0)
            place = self._child(below, start, place.entries[index])
        index = _bisect_key(place.entries, key)
        if index and place.entries[index - 1].key == key:
            return place.start + index - 1, place.entries[index - 1]
        return place.start + index, None

    def leaf_at(self, position: int) -> tuple[int, int, ObjectId | None]:
        """Where the leaf over a position starts and stops, and its id.

        The leaf of a tree of one node has none of its own.
        """
        if not self.height:
            return 0, self.total, None
        place = self.node_at(1, position)
        index = bisect_right(place.bounds, position - place.start)
        before = place.bounds[index - 1] if index else 0
        id = place.entries[index].body
        return place.start + before, place.start + place.bounds[index], id

    def entries(self, start: int, stop: int) -> list[Entry]:
        """The entries of leaves over [start, stop), those of one index read together."""
        found: list[Entry] = []
        read_to = start
        while start < stop:
            if start >= read_to and self.height:
                above = self.node_at(1, start)
                self._fetch_children(above, start, stop)
                read_to = above.stop
            place = self.node_at(0, start)
            found += _between(place, start, min(stop, place.stop))
            start = place.stop
        return found

    def _fetch_children(self, place: Place, start: int, stop: int) -> None:
        """Read the leaves of an index of the lowest level over [start, stop)."""
        low = bisect_right(place.bounds, start - place.start)
        high = bisect_left(place.bounds, stop - place.start) + 1
        absent = [one.body for one in place.entries[low:high] if one.body not in self._fetched]
        if len(absent) > 1:
            for id, found in zip(absent, self._read(absent), strict=True):
                entries = self.layout.read(0, found)
                self._fetched[id] = Node(entries, _bounds(entries))

    def leaves(self) -> Iterable[Place]:
        """The leaves from left to right."""
        position = 0
        while position < self.total:
            place = self.node_at(0, position)
            yield place
            position = place.stop


def _bounds(entries: list[Entry]) -> list[int]:
    return list(accumulate([entry.weight for entry in entries]))


def _bisect_key(entries: list[Entry], key: bytes) -> int:
    return bisect_right(entries, key, key=_key_of)


_key_of = itemgetter(0)


class _Cutter:
    """Gathers entries and cuts them into groups."""

    def __init__(self, layout: Layout, level: int) -> None:
        self._layout = layout
        self._level = level
        self._filled = 0
        self._open: list[Entry] = []
        self._prefix: Prefix | None = None
        self.groups: list[Group] = []

    @property
    def at_cut(self) -> bool:
        return not self._open

    def feed(self, entries: Sequence[Entry]) -> None:
        layout, level = self._layout, self._level
        indexed = level >= layout.first_index
        # An index of one node would be no smaller than the level below it.
        fewest = 2 if indexed else 1
        for entry in entries:
            key, body, _ = entry
            size = len(key) + (INDEXED_SIZE if indexed else len(body))
            self._filled += size
            self._open.append(entry)
            if self._filled < NODE_MIN or len(self._open) < fewest:
                continue
            if cuts_after(self._filled, size, layout.mark(level, entry)):
                self._cut()

    def resume(self, place: Place, count: int) -> None:
        """Take the first entries of an old node, after none of which but the last was a cut."""
        layout, level = self._layout, self._level
        before, rest = place.entries[: count - 1], place.entries[count - 1 :]
        self._open = before
        if len(rest) > _SHORT or place.filled is None:
            self._filled = sum([len(entry.key) for entry in before])
            if level >= layout.first_index:
                self._filled += INDEXED_SIZE * len(before)
            else:
                self._filled += sum([len(entry.body) for entry in before])
        else:
            self._filled = place.filled - sum([layout.size(level, entry) for entry in rest])
        if len(rest) <= _SHORT and place.body is not None:
            kept = len(place.body) - len(layout.body(level, rest))
            self._prefix = Prefix(len(before), place.body[:kept])
        self.feed(rest[: count - len(before)])

    def finish(self) -> None:
        if self._open:
            self._cut()

    def _cut(self) -> None:
        self.groups.append(Group(self._open, self._filled, self._prefix))
        self._open, self._filled, self._prefix = [], 0, None


def _recut(view: View, level: int, spans: Sequence[Span]) -> list[Region]:
    """Replace spans at one level, in ascending order and without overlaps."""
    regions: list[Region] = []
    pending = list(reversed(spans))
    while pending:
        regions.append(_recut_region(view, level, pending))
    return regions


def _recut_region(view: View, level: int, pending: list[Span]) -> Region:
    """Cut from the node of the next span until a cut meets an old node's end."""
    cutter = _Cutter(view.layout, level)
    place = view.node_at(level, pending[-1].start)
    olds, position, start = [place], place.start, place.start
    # What stood inline was never cut; it has one level.
    if view.height and pending[-1].start > start:
        position = min(pending[-1].start, place.stop)
        cutter.resume(place, bisect_right(place.bounds, position - start))
    while True:
        # A span starts in this node; at its end only if it is the last one.
        if pending and (pending[-1].start < place.stop or place.stop >= view.total):
            span = pending.pop()
            cutter.feed(_between(place, position, span.start))
            cutter.feed(span.entries)
            position = span.stop
            place = _follow(view, level, place, position, olds)
            continue
        if position < place.stop:
            cutter.feed(_between(place, position, place.stop))
            position = place.stop
        if cutter.at_cut or position >= view.total:
            break
        place = _follow(view, level, place, position, olds)
    cutter.finish()
    return Region(start, position, cutter.groups, olds)


def _follow(view: View, level: int, place: Place, position: int, olds: list[Place]) -> Place:
    """The node at a position, noted as replaced when it is another one."""
    if position < place.stop or position >= view.total:
        return place
    found = view.node_at(level, position)
    olds.append(found)
    return found


def _between(place: Place, start: int, stop: int) -> list[Entry]:
    """The entries of a node over [start, stop); both fall between entries."""
    if not place.entries or start >= stop:
        return []
    low = bisect_right(place.bounds, start - place.start)
    high = bisect_right(place.bounds, stop - place.start)
    return place.entries[low:high]


class Rebuilt(NamedTuple):
    """The new top of a tree, the new nodes, and what changed in the leaves."""

    height: int
    entries: list[Entry]
    objects: dict[ObjectId, Object]
    nodes: dict[ObjectId, Node]
    """The new nodes."""
    top: Node | None = None
    """What is known of the top."""


def rebuild(view: View, spans: Sequence[Span]) -> Rebuilt:
    """Replace spans of a tree; spans ascend and do not overlap."""
    made = Rebuilt(view.height, view.top.entries, {}, {})
    if not spans:
        return made
    patched = _patched(view, spans[0]) if len(spans) == 1 else None
    if patched is not None:
        return patched
    regions = _recut(view, 0, spans)
    level = 0
    while len(regions) > 1 or regions[0].start or regions[0].stop < view.total:
        spans = [_raise_region(view, level, region, made) for region in regions]
        level += 1
        regions = _recut(view, level, spans)
    region = regions[0]
    while len(region.groups) > 1:
        (entries,) = [_raise_region(view, level, region, made).entries]
        level += 1
        cutter = _Cutter(view.layout, level)
        cutter.feed(entries)
        cutter.finish()
        olds = [view.node_at(level, 0)] if level <= view.height else []
        region = Region(0, view.total, cutter.groups, olds)
    if not region.groups:
        return made._replace(height=level, entries=[])
    group = region.groups[0]
    return _lowest(view, level, group.entries, made, _node(view, level, group))


def _patched(view: View, span: Span) -> Rebuilt | None:
    """A tree of which one leaf changes and ends where it did; None if more has to be cut."""
    layout, place = view.layout, view.top
    if not layout.first_index:
        return None  # Its leaves are chunks, which are no nodes.
    way: list[tuple[Place, int]] = []
    for level in range(view.height - 1, -1, -1):
        at = min(bisect_right(place.bounds, span.start - place.start), len(place.entries) - 1)
        way.append((place, at))
        start = place.start + (place.bounds[at - 1] if at else 0)
        place = view._child(level, start, place.entries[at])
    entries, total = place.entries, view.total
    low, high = span.start - place.start, span.stop - place.start
    count, is_last = len(entries), place.start + len(entries) >= total
    made = [*entries[:low], *span.entries, *entries[high:]]
    if high > count or not made or (way and made[0].key != entries[0].key):
        return None  # It reaches into the next leaf, or this one stands elsewhere from now on.

    # Where cuts fall from the change on. What stood inline was never cut.
    body = layout.body(0, entries) if place.body is None else place.body
    end = len(body) - _size(entries[high:])
    before = end - _size(entries[low:high])
    known = 0
    if way or place.filled is not None:
        known = max(low - 1, 0) if low == count else low
    filled, cut = before - _size(entries[known:low]), False
    for entry in made[known:]:
        if cut:
            return None
        size = len(entry.key) + len(entry.body)
        filled += size
        cut = filled >= NODE_MIN and cuts_after(filled, size, layout.mark(0, entry))
    if not (cut or is_last):
        return None

    # The leaf, and the nodes above it.
    body = body[:before] + layout.body(0, span.entries) + body[end:]
    node = Node(made, list(range(1, len(made) + 1)), filled, body)
    objects: dict[ObjectId, Object] = {}
    nodes: dict[ObjectId, Node] = {}
    replaced = place.id
    grown = len(made) - count
    for level in range(1, len(way) + 1):
        payload = layout.payload(level - 1, len(node.entries), node.body or b"")
        child = make_object(layout.kind(level - 1), payload)
        if child.id != replaced:
            objects[child.id], nodes[child.id] = child, node
        place, at = way[-level]
        old = place.entries[at]
        entry = Entry(old.key, child.id, old.weight + grown)
        is_end = at == len(place.entries) - 1
        if not layout.keyed and not (is_end and place.stop >= total):
            # Where a sequence of nodes is cut depends on their ids.
            size = INDEXED_SIZE * (at + 1)
            if is_end != (at > 0 and cuts_after(size, INDEXED_SIZE, layout.mark(level, entry))):
                return None
        node, replaced = _with_entry(layout, level, place, at, entry), place.id
    return Rebuilt(view.height, node.entries, objects, nodes, node)


def _size(entries: Sequence[Entry]) -> int:
    """The bytes of some entries of a leaf."""
    return sum([len(entry.key) + len(entry.body) for entry in entries])


def _with_entry(layout: Layout, level: int, place: Place, at: int, entry: Entry) -> Node:
    """An index in which another node stands in the place of one."""
    entries, body = place.entries.copy(), place.body
    grown = entry.weight - entries[at].weight
    entries[at] = entry
    if body is None or len(entries) - at > _SHORT:
        body = layout.body(level, entries)
    else:
        kept = len(body) - len(layout.body(level, place.entries[at:]))
        body = body[:kept] + layout.body(level, entries[at:])
    bounds = [*place.bounds[:at], *[bound + grown for bound in place.bounds[at:]]]
    return Node(entries, bounds, place.filled, body)


def _raise_region(view: View, level: int, region: Region, rebuilt: Rebuilt) -> Span:
    """Make the nodes of a region, and the span that they replace one level up."""
    entries, olds = [], {old.id for old in region.olds}
    for group in region.groups:
        node = _node(view, level, group)
        assert node.body is not None
        payload = view.layout.payload(level, len(group.entries), node.body)
        made = make_object(view.layout.kind(level), payload)
        if made.id not in olds:
            rebuilt.objects[made.id], rebuilt.nodes[made.id] = made, node
        entries.append(index_entry(view.layout, made.id, group.entries))
    return Span(region.start, region.stop, entries)


def _node(view: View, level: int, group: Group) -> Node:
    body = group.body(view.layout, level)
    return Node(group.entries, _bounds(group.entries), group.filled, body)


def _lowest(view: View, level: int, top: list[Entry], rebuilt: Rebuilt, node: Node) -> Rebuilt:
    """A top with one entry is no top: take the node beneath it."""
    found: Node | None = node
    while level and len(top) == 1:
        level -= 1
        if rebuilt.objects.pop(top[0].body, None) is None:
            top, found = view._child(level, 0, top[0]).entries, None
        else:
            found = rebuilt.nodes.pop(top[0].body)
            top = found.entries
    return rebuilt._replace(height=level, entries=top, top=found)
