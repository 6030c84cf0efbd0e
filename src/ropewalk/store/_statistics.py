"""Statistics: what takes the room in a store, by space, ref and key.

Every object is read once, and remembered by number. Everything after that is counting:
a walk visits each object once for each ref, and once or twice for what a space's keys
have of it.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ropewalk.codec import decode
from ropewalk.errors import RopewalkError
from ropewalk.store._collecting import Collected, Progress, collect
from ropewalk.store._graph import Graph, Label, Top
from ropewalk.store._own import is_arriving
from ropewalk.store._records import Ref

if TYPE_CHECKING:
    from ropewalk.store._object_store import ObjectStore

_SEVERAL = -1


@dataclass(frozen=True, slots=True)
class KeyStats:
    """What one top-level key takes, over all versions that refs reach."""

    kind: str
    """`key`; or what is none: `value` (values without keys), `structure` (indexes and the
    order of keys), `commits`, `metadata`, `events`, and `several`, for what more than one
    of these share."""
    key: str
    """The key, as text; empty for the other kinds."""
    stored: int


@dataclass(frozen=True, slots=True)
class RefStats:
    """What one ref reaches."""

    name: str
    stored: int
    alone: int
    """Bytes that no other ref of the space reaches."""
    commits: int


@dataclass(frozen=True, slots=True)
class SpaceStats:
    """What the refs of one space reach."""

    name: str
    objects: int
    stored: int
    alone: int
    """Bytes that the refs of no other space reach."""
    payload: int
    commits: int
    operations: int
    refs: tuple[RefStats, ...]
    keys: tuple[KeyStats, ...]
    """The largest first; together they are `stored`."""


@dataclass(frozen=True, slots=True)
class Stats:
    """What a store holds. `stored` are bytes of frames, `payload` those of the objects in them."""

    objects: int
    stored: int
    payload: int
    reached: int
    """Bytes that refs reach."""
    shared: int
    """Of these, what the refs of more than one space reach."""
    freed: int
    """Objects that a collection would delete now."""
    freed_bytes: int
    commits: int
    """Commits that refs reach."""
    operations: int
    disk: int | None
    """Bytes that the engine takes for everything; None if it cannot say."""
    spaces: tuple[SpaceStats, ...]


def statistics(store: ObjectStore, recent: int, progress: Progress | None = None) -> Stats:
    """Count what a store holds; changes nothing.

    Raises what a damaged or missing object raises, if a ref leads to it.
    """
    tell = (lambda step, done: None) if progress is None else progress
    # Before all else, so that its memory is free again.
    told = collect(store, recent, dry_run=True, progress=progress)
    # Refs first: what they reach is there when objects are listed after.
    spaces = {space: store.view(space) for space in store.spaces()}
    refs = {
        space: [ref for ref in view.refs if not is_arriving(space, ref.name)]
        for space, view in spaces.items()
    }
    graph = Graph(store, tell)
    graph.load([ref.target for some in refs.values() for ref in some])
    counter = _Counter(graph)
    counted = [counter.count(space, spaces[space].sequence, refs[space]) for space in spaces]
    return _put_together(store, graph, counter, counted, told)


def _put_together(
    store: ObjectStore, graph: Graph, counter: _Counter, counted: list[_Counted], told: Collected
) -> Stats:
    alone = [0] * len(counted)
    reached = shared = commits = 0
    for number, owner in enumerate(counter.spaces):
        if owner == 0:
            continue
        size = graph.stored[number]
        reached += size
        commits += number in graph.steps
        if owner == _SEVERAL:
            shared += size
        else:
            alone[owner - 1] += size
    return Stats(
        objects=len(graph.stored),
        stored=sum(graph.stored),
        payload=sum(graph.lengths),
        reached=reached,
        shared=shared,
        freed=told.freed,
        freed_bytes=told.freed_bytes,
        commits=commits,
        operations=sum(one.operations for one in counted),
        disk=store._disk_bytes(),
        spaces=tuple(one.finish(size) for one, size in zip(counted, alone, strict=True)),
    )


@dataclass(slots=True)
class _Counted:
    """A space, without what is known only when all are counted."""

    name: str
    members: int
    stored: int
    payload: int
    commits: int
    operations: int
    refs: tuple[RefStats, ...]
    keys: tuple[KeyStats, ...]

    def finish(self, alone: int) -> SpaceStats:
        return SpaceStats(
            self.name,
            self.members,
            self.stored,
            alone,
            self.payload,
            self.commits,
            self.operations,
            self.refs,
            self.keys,
        )


class _Counter:
    """Counts space by space. Arrays say who owns an object; none is cleared between spaces."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        size = len(graph.stored)
        self.spaces = array("l", bytes(array("l").itemsize * size))
        """The number of the only space that reaches an object, from 1 on, or `_SEVERAL`."""
        self._visited = array("L", bytes(array("L").itemsize * size))
        self._visits = 0
        self._number = 0

    def count(self, name: str, operations: int, refs: list[Ref]) -> _Counted:
        self._number += 1
        graph = self._graph
        numbers = [graph.number(ref.target) for ref in refs]
        owners, rows = self._count_refs(refs, numbers)
        for number in owners:
            self.spaces[number] = self._number if self.spaces[number] == 0 else _SEVERAL
        return _Counted(
            name,
            len(owners),
            sum(graph.stored[number] for number in owners),
            sum(graph.lengths[number] for number in owners),
            sum(number in graph.steps for number in owners),
            operations,
            rows,
            _Keys(graph).count(owners, numbers),
        )

    def _count_refs(
        self, refs: list[Ref], numbers: list[int]
    ) -> tuple[dict[int, int], tuple[RefStats, ...]]:
        """Who of the refs owns what, and what each reaches."""
        graph = self._graph
        owners: dict[int, int] = {}
        reached: list[tuple[int, int]] = []
        for at, start in enumerate(numbers):
            found = self._reach(start)
            for number in found:
                if owners.setdefault(number, at) != at:
                    owners[number] = _SEVERAL
            stored = sum(graph.stored[number] for number in found)
            reached.append((stored, sum(number in graph.steps for number in found)))
        alone = [0] * len(refs)
        for number, owner in owners.items():
            if owner != _SEVERAL:
                alone[owner] += graph.stored[number]
        rows = [
            RefStats(ref.name, stored, mine, commits)
            for ref, (stored, commits), mine in zip(refs, reached, alone, strict=True)
        ]
        return owners, tuple(rows)

    def _reach(self, start: int) -> list[int]:
        self._visits += 1
        visit, visited, edges = self._visits, self._visited, self._graph.edges
        visited[start] = visit
        found = [start]
        for number in found:  # Grows meanwhile.
            for target in edges[number] or ():
                if visited[target] != visit:
                    visited[target] = visit
                    found.append(target)
        return found


class _Keys:
    """What the keys of one space's values take.

    An object belongs to the label by which it is first reached. When another label
    reaches it too, it and all that it leads to belong to several: so each is visited
    twice at most.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._owners: dict[int, int] = {}
        self._tops: dict[int, Top] = {}

    def count(self, members: Iterable[int], targets: Iterable[int]) -> tuple[KeyStats, ...]:
        graph = self._graph
        roots = [number for number in targets if number not in graph.steps]
        reached: list[tuple[int, int]] = []
        metadata, events = graph.label(Label("metadata")), graph.label(Label("events"))
        for number in members:
            step = graph.steps.get(number)
            if step is not None:
                roots.append(step.root)
                reached += [(step.metadata, metadata), (step.events, events)]
        value = graph.label(Label("value"))
        reached += [(number, value) for number in self._open(roots)]
        for top in self._tops.values():
            reached += zip(top.targets, top.target_labels, strict=True)
        self._follow([(number, label) for number, label in reached if number >= 0])
        return self._rows(members)

    def _open(self, pending: list[int]) -> list[int]:
        """Find the tops of values; what is none, because a ref points to a bare chunk."""
        others: list[int] = []
        for number in pending:  # Grows meanwhile.
            top = self._graph.tops.get(number)
            if top is None:
                others.append(number)
            elif number not in self._tops:
                self._tops[number] = top
                pending.extend(top.below)
        return others

    def _follow(self, pending: list[tuple[int, int]]) -> None:
        owners, edges = self._owners, self._graph.edges
        while pending:
            number, label = pending.pop()
            owner = owners.get(number)
            if owner is None:
                owners[number] = label
            elif owner in (label, _SEVERAL):
                continue
            else:
                owners[number] = label = _SEVERAL
            pending.extend((target, label) for target in edges[number] or ())

    def _rows(self, members: Iterable[int]) -> tuple[KeyStats, ...]:
        graph = self._graph
        amounts: defaultdict[int, int] = defaultdict(int)
        commits = graph.label(Label("commits"))
        for number in members:
            stored = graph.stored[number]
            if number in graph.steps:
                amounts[commits] += stored
            elif number not in self._tops:
                amounts[self._owners[number]] += stored
            elif number in self._owners:
                amounts[_SEVERAL] += stored  # At the top of a value, and inside one.
            else:
                _divide(stored, self._tops[number], amounts)
        labels = list(graph.labels)
        rows = [
            KeyStats("several", "", stored)
            if label == _SEVERAL
            else KeyStats(labels[label].kind, _text(labels[label]), stored)
            for label, stored in amounts.items()
        ]
        return tuple(sorted(rows, key=lambda row: (-row.stored, row.kind, row.key)))


def _divide(stored: int, top: Top, amounts: defaultdict[int, int]) -> None:
    """Give each label its part of a frame, by the length of what it has in there."""
    whole, done, given = sum(top.sizes), 0, 0
    for label, size in zip(top.labels, top.sizes, strict=True):
        done += size
        share = stored * done // whole - given
        given += share
        amounts[label] += share


def _text(label: Label) -> str:
    if label.kind != "key":
        return ""
    try:
        key = decode(label.key)
    except RopewalkError:
        return label.key.hex()  # Of a class that this program did not declare.
    return key if isinstance(key, str) else repr(key)
