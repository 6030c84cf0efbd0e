"""The catalog of a store in a bucket: its latest epoch, and which objects are marked.

A mark is about copies, and a copy belongs to the epoch of its pack. What was written before
the epoch of a mark bears it; what was written since does not. So whoever writes an object
again revives it without touching the catalog, and a pack that comes late, from a writer who
did not know of the mark, bears it too.

The catalog also says which packs were there when marks were last set. Another one of an older
epoch came late: its commit may have failed, so nothing in it can be needed. See design note 014.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from ropewalk.store._key_value_calls import Cells
from ropewalk.store._key_value_cells import damaged, seal, unseal
from ropewalk.store._s3_packs import TOKEN, token_of
from ropewalk.tree.objects import ID_SIZE, ObjectId

CATALOG = "ropewalk/catalog"


class State(Enum):
    """What a mark makes of a copy."""

    ALIVE = 0
    CONDEMNED = 1
    DEAD = 2


class Mark(NamedTuple):
    """What is said about the copies of one object."""

    dead: int
    """Copies from before this epoch are deleted."""
    epoch: int
    """Copies from before this epoch are condemned; 0 if none are."""
    collection: int

    def state(self, epoch: int) -> State:
        """Of a copy in a pack of this epoch."""
        if epoch < self.dead:
            return State.DEAD
        return State.CONDEMNED if epoch < self.epoch else State.ALIVE


UNMARKED = Mark(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Catalog:
    """What collections change, by compare-and-set."""

    epoch: int
    revision: int = 0
    marks: Mapping[ObjectId, Mark] = field(default_factory=dict)
    since: int = 0
    """Packs from before this epoch are in doubt, unless they are known."""
    known: frozenset[bytes] = frozenset()
    """The tokens of the packs that were there when that epoch began."""

    def mark(self, id: ObjectId) -> Mark:
        """The mark of an object."""
        return self.marks.get(id, UNMARKED)

    def doubts(self, pack: str, epoch: int) -> bool:
        """Whether the commit that wrote a pack may have failed beside a collection."""
        return epoch < self.since and token_of(pack) not in self.known

    def state(self, id: ObjectId, pack: str, epoch: int) -> State:
        """What a copy of an object in a pack is worth."""
        state = self.mark(id).state(epoch)
        if state is State.ALIVE and self.doubts(pack, epoch):
            return State.CONDEMNED
        return state

    def knowing(self, packs: Iterable[tuple[str, int]]) -> Catalog:
        """With no other packs trusted, up to now, than these, with their epochs."""
        known = frozenset(token_of(pack) for pack, epoch in packs if not self.doubts(pack, epoch))
        return replace(self, since=self.epoch, known=known)

    def raised(self) -> Catalog:
        """With the next epoch."""
        return replace(self, epoch=self.epoch + 1)

    def marked(self, marks: Mapping[ObjectId, Mark]) -> Catalog:
        """With other marks for some objects."""
        changed = {**self.marks, **marks}
        for id in marks:
            if changed[id] == UNMARKED:
                del changed[id]
        return replace(self, marks=changed)

    def condemned(self, ids: Iterable[ObjectId], collection: int) -> Catalog:
        """With objects condemned, in the next epoch."""
        after = self.raised()
        return after.marked({id: Mark(self.mark(id).dead, after.epoch, collection) for id in ids})

    def revived(self, ids: Iterable[ObjectId]) -> Catalog:
        """With no condemnation of objects; what is deleted stays so."""
        return self.marked({id: Mark(self.marks[id].dead, 0, 0) for id in ids if id in self.marks})

    def deleted(self, ids: Iterable[ObjectId]) -> Catalog:
        """With the condemned copies of objects deleted."""
        return self.marked({id: Mark(self.marks[id].epoch, 0, 0) for id in ids})


def read_catalog(cells: Cells) -> tuple[bytes, Catalog]:
    """The catalog as it is now, and its bytes."""
    data = cells.get(CATALOG)
    if data is None:
        raise damaged(CATALOG)
    return data, decode_catalog(data)


def change_catalog(cells: Cells, change: Callable[[Catalog], Catalog]) -> Catalog:
    """Change the catalog in one step; as it is then."""
    while True:
        data, before = read_catalog(cells)
        after = change(before)
        if after == before:
            return before
        after = replace(after, revision=before.revision + 1)
        if cells.swap(CATALOG, data, encode_catalog(after)):
            return after


def encode_catalog(catalog: Catalog) -> bytes:
    """Spell a catalog; marks that are equal are spelled once."""
    groups: dict[Mark, list[ObjectId]] = {}
    for id, mark in catalog.marks.items():
        groups.setdefault(mark, []).append(id)
    spelled = [[*mark, b"".join(sorted(ids))] for mark, ids in groups.items()]
    known = b"".join(sorted(catalog.known))
    return seal(CATALOG, [catalog.revision, catalog.epoch, spelled, catalog.since, known])


def decode_catalog(data: bytes) -> Catalog:
    """Read a catalog; `FormatError` if it is none."""
    match unseal(CATALOG, data):
        case [int(revision), int(epoch), list(groups), int(since), bytes(tokens)]:
            marks: dict[ObjectId, Mark] = {}
            for group in groups:
                mark, ids = _decode_group(group)
                marks.update(dict.fromkeys(_cut(ids, ID_SIZE), mark))
            return Catalog(epoch, revision, marks, since, frozenset(_cut(tokens, TOKEN)))
    raise damaged(CATALOG)


def _cut(joined: bytes, size: int) -> Iterator[bytes]:
    return (joined[start : start + size] for start in range(0, len(joined), size))


def _decode_group(group: object) -> tuple[Mark, bytes]:
    match group:
        case [int(dead), int(epoch), int(collection), bytes(ids)] if len(ids) % ID_SIZE == 0:
            return Mark(dead, epoch, collection), ids
    raise damaged(CATALOG)
