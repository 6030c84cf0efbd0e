"""Who points to whom: what statistics remember of a store, as numbers, object by object."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from ropewalk.errors import MissingObjects
from ropewalk.store._reaching import BATCH
from ropewalk.store._reading import read_objects
from ropewalk.tree import Kind, Object, ObjectId, links, read_commit
from ropewalk.tree.container import Division, divide

if TYPE_CHECKING:
    from ropewalk.store._collecting import Progress
    from ropewalk.store._object_store import ObjectStore


class Label(NamedTuple):
    """What bytes are for: the kind of a row, and the encoded key if it is `key`."""

    kind: str
    key: bytes = b""


class Top(NamedTuple):
    """A node at the top of a value: who has how much of it, and where each goes on."""

    labels: array[int]
    sizes: array[int]
    below: array[int]
    targets: array[int]
    target_labels: array[int]


_NOTHING: array[int] = array("L")


class Step(NamedTuple):
    """A commit, as numbers; -1 where there is nothing."""

    root: int
    metadata: int
    events: int


class Graph:
    """Every object that some roots lead to, read once and remembered by number."""

    def __init__(self, store: ObjectStore, tell: Progress) -> None:
        self._store, self._tell = store, tell
        self._ids: list[ObjectId] = []
        self.stored, self.lengths, self._kinds = array("Q"), array("Q"), bytearray()
        for one in store.scan():
            self._ids.append(one.id)
            self.stored.append(one.stored)
            self.lengths.append(one.length)
            self._kinds.append(one.kind)
        self._numbers = {id: number for number, id in enumerate(self._ids)}
        self.edges: list[array[int] | None] = [None] * len(self._ids)
        self.steps: dict[int, Step] = {}
        self.tops: dict[int, Top] = {}
        self.labels: dict[Label, int] = {}
        self._read = 0

    def label(self, label: Label) -> int:
        """The number of a label."""
        return self.labels.setdefault(label, len(self.labels))

    def load(self, targets: Iterable[ObjectId]) -> None:
        """Read what these lead to: commits first, then the tops of values, then the rest.

        In this order each object is read once. Raises what a missing or damaged object
        raises.
        """
        rest: list[int] = []
        tops = self._load_commits([self.number(id) for id in targets], rest)
        self._load_tops(tops, rest)
        self._load_rest(rest)

    def _load_commits(self, pending: list[int], rest: list[int]) -> list[int]:
        """Commits and their parents; where their values begin."""
        tops: list[int] = []
        for number, found in self._reading(pending):
            if found.kind != Kind.COMMIT:
                # A ref may point to a value itself.
                tops += self._add_top(number, divide(found), rest)
                continue
            commit = read_commit(found)
            root = self.number(commit.root)
            further = [self._optional(id) for id in (commit.metadata, commit.events)]
            parents = [self.number(id) for id in commit.parents]
            self.steps[number] = Step(root, *further)
            existing = [one for one in further if one >= 0]
            self.edges[number] = array("L", [root, *existing, *parents])
            tops.append(root)
            rest += existing
            pending += parents
        return tops

    def _load_tops(self, pending: list[int], rest: list[int]) -> None:
        for number, found in self._reading(pending):
            pending += self._add_top(number, divide(found), rest)

    def _load_rest(self, pending: list[int]) -> None:
        for number, found in self._reading(pending):
            targets = [self.number(id) for id in links(found)]
            self.edges[number] = array("L", targets)
            pending += targets

    def _add_top(self, number: int, division: Division, rest: list[int]) -> list[int]:
        """Remember a node at the top of a value; the nodes beneath it that are tops too."""
        below = [self.number(id) for id in division.below]
        top = Top(array("L"), array("L"), array("L", below), array("L"), array("L"))
        for share in division.shares:
            if share.key is not None:
                label = self.label(Label("key", share.key))
            else:
                label = self.label(Label("structure" if division.keyed else "value"))
            targets = [self.number(id) for id in share.links]
            top.labels.append(label)
            top.sizes.append(share.size)
            top.targets.extend(targets)
            top.target_labels.extend([label] * len(targets))
        self.tops[number] = top
        self.edges[number] = array("L", [*below, *top.targets])
        rest += top.targets
        return below

    def _reading(self, pending: list[int]) -> Iterator[tuple[int, Object]]:
        """Take numbers off the list and read those that were not; it may grow meanwhile."""
        while pending:
            batch: dict[int, None] = {}
            while pending and len(batch) < BATCH:
                number = pending.pop()
                if self.edges[number] is None:
                    if self._kinds[number] == Kind.CHUNK:
                        self.edges[number] = _NOTHING
                    else:
                        batch[number] = None
            ids = [self._ids[number] for number in batch]
            for number, found in zip(batch, read_objects(ids, self._store._frames), strict=True):
                yield number, found
            self._read += len(batch)
            self._tell("reading", self._read)

    def number(self, id: ObjectId) -> int:
        """The number of an object; `MissingObjects` if there is none."""
        try:
            return self._numbers[id]
        except KeyError:
            raise MissingObjects([id]) from None

    def _optional(self, id: ObjectId | None) -> int:
        return -1 if id is None else self.number(id)
