"""Collection: what nothing reaches any more is deleted, beside writers who go on.

The order is the whole matter. Mark what is reached; condemn the rest; raise the epochs,
after which no writer trusts what it knew; mark again, from what was done meanwhile and from
what was stored meanwhile, and revive what that reaches; wait; delete what is still condemned.
See design notes 003 and 014.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from ropewalk.errors import MissingObjects
from ropewalk.store._frames import MAX_DEPTH
from ropewalk.store._own import NEVER_UNDONE, is_arriving
from ropewalk.store._reaching import walk

if TYPE_CHECKING:
    from ropewalk.store._contract import Store
    from ropewalk.store._object_store import ObjectStore
    from ropewalk.store._records import Operation, Stored, View
    from ropewalk.tree import ObjectId

Progress = Callable[[str, int], None]
"""Is told what is being done, and how many objects have been dealt with so far."""

_TOLD_AFTER = 1000
_DELETED_AT_A_TIME = 10_000
_PAGE = 1000


@dataclass(frozen=True, slots=True)
class Collected:
    """What a collection found and did."""

    kept: int
    """Objects that stay."""
    kept_bytes: int
    """Bytes of their frames."""
    freed: int
    """Objects that were deleted, or would be."""
    freed_bytes: int
    dry_run: bool


def collect(
    store: ObjectStore,
    recent: int,
    grace: float = 0.0,
    dry_run: bool = False,
    progress: Progress | None = None,
    *,
    among: Collection[ObjectId] | None = None,
) -> Collected:
    """Delete what no ref and no recent operation reaches; what that freed.

    With `among` only these are deleted, whatever else is not reached.
    Raises what a damaged or missing object raises before anything is condemned: what
    lies behind it cannot be seen.
    """
    tell = _quiet if progress is None else progress
    stored = list(store.scan())
    marks = Marks(store, recent, tell)
    marks.mark(stored)
    bases = {one.id: one.base for one in stored if one.base is not None}
    marks.mark_bases(marks.seen, bases)
    doomed, spared, marked = _sort(stored, bases, marks.seen)
    if among is not None:
        spared |= {id: size for id, size in doomed.items() if id not in among}
        doomed = {id: size for id, size in doomed.items() if id in among}
    if dry_run:
        return _result(doomed, spared, dry_run)
    store.revive(marked)
    store.settle(marks.sound)
    if not doomed:
        return _result(doomed, spared, dry_run)
    collection = secrets.randbelow(2**62) + 1
    condemned = store.condemn(doomed, collection)
    store.raise_epochs()
    stored = list(store.scan())
    saved = marks.mark(stored) | marks.reach(doomed.keys() - set(condemned))
    # What was stored beside us must stay whole, although nothing leads to it.
    saved |= marks.reach(one.id for one in stored if not one.condemned)
    bases |= {one.id: one.base for one in stored if one.base is not None}
    saved |= marks.mark_bases(saved, bases)
    store.revive(sorted(saved & doomed.keys()))
    store.settle(marks.sound)
    time.sleep(grace)
    gone: set[ObjectId] = set()
    for some in _portions(condemned):
        gone.update(store.delete(some, collection))
        tell("deleting", len(gone))
    spared.update((id, size) for id, size in doomed.items() if id not in gone)
    return _result({id: doomed[id] for id in gone}, spared, dry_run)


class Marks:
    """What refs and recent operations reach. Marking again looks only at what is new."""

    def __init__(self, store: ObjectStore, recent: int, tell: Progress) -> None:
        self.seen: set[ObjectId] = set()
        self.sound: list[Stored] = []
        """Of what was in doubt, that to which refs lead: nothing below it is gone."""
        self._store, self._recent, self._tell = store, recent, tell
        self._visited = 0
        self._looked_at: dict[str, int] = {}
        """The sequence number up to which a space's operations were looked at."""

    def mark(self, stored: Iterable[Stored]) -> set[ObjectId]:
        """Add what is reached now; what was added.

        What is stored was looked at before: what was put in its place since is not `sound`.
        """
        added: set[ObjectId] = set()
        views = {space: self._store.view(space) for space in self._store.spaces()}
        # All refs before any log: where something is missing, nobody looks a second time.
        for space, view in views.items():
            added |= self.reach(roots(space, view)[0], expect_all=True)
        self.sound = [one for one in stored if one.doubt and one.id in added]
        for space, view in views.items():
            added |= self.reach(roots(space, view)[1])
            if space in NEVER_UNDONE:
                continue
            before = self._looked_at.get(space, 0)
            self._looked_at[space] = view.sequence
            after = max(view.sequence - self._recent, 0) if before == 0 else before
            # What comes after this view is looked at the next time, or knows of the new epoch:
            # who would go on to the end might never catch up with those who write.
            found = operations(self._store, space, after, view.sequence)
            # What an operation moved away from may have been deleted before.
            added |= self.reach([id for one in found for id in ends(one)], expect_sound=True)
        self._tell("marking", len(self.seen))
        return added

    def mark_bases(
        self, ids: Iterable[ObjectId], bases: Mapping[ObjectId, ObjectId]
    ) -> set[ObjectId]:
        """Add what these objects are stored against, and all that this reaches.

        An object that is there must be whole: a writer who knows it may need it, and
        then nobody looks further.
        """
        added: set[ObjectId] = set()
        pending = set(ids)
        while pending:
            pending = self.reach({bases[id] for id in pending if id in bases})
            added |= pending
        return added

    def reach(
        self, roots: Iterable[ObjectId], *, expect_sound: bool = False, expect_all: bool = False
    ) -> set[ObjectId]:
        """Add objects and all that they reach.

        `expect_sound` raises for one that is damaged, because what it leads to cannot be
        seen; `expect_all` also for one that is missing.
        """
        added: set[ObjectId] = set()
        # Nothing may be taken for a chunk, which leads nowhere, because a bit of it is wrong.
        for visit in walk(roots, self._store._frames, self.seen, verify_chunks=True):
            if visit.problem is None:
                added.add(visit.id)
            elif expect_all or (expect_sound and not isinstance(visit.problem, MissingObjects)):
                raise visit.problem
            else:
                # Nothing is kept by a name alone.
                self.seen.discard(visit.id)
            self._visited += 1
            if self._visited % _TOLD_AFTER == 0:
                self._tell("marking", len(self.seen))
        return added


def operations(
    store: Store, space: str, after: int, until: float = math.inf
) -> Iterator[Operation]:
    """All operations of a space from number `after + 1` on, up to number `until`."""
    while after < until and (page := store.operations(space, after, _PAGE)):
        yield from (one for one in page if one.sequence <= until)
        after = page[-1].sequence


def roots(space: str, view: View) -> tuple[list[ObjectId], list[ObjectId]]:
    """Where refs are: those that lead to something whole, and those that need not."""
    sound: list[ObjectId] = []
    arriving: list[ObjectId] = []
    for name, target, _ in view.refs:
        (arriving if is_arriving(space, name) else sound).append(target)
    return sound, arriving


def ends(operation: Operation) -> list[ObjectId]:
    """Where an operation moved refs from and to."""
    found = [id for move in operation.moves for id in (move.expected, move.target)]
    return [id for id in found if id is not None]


def _sort(
    stored: Iterable[Stored], bases: Mapping[ObjectId, ObjectId], alive: set[ObjectId]
) -> tuple[dict[ObjectId, int], dict[ObjectId, int], list[ObjectId]]:
    """The objects that nothing reaches, and those that stay, with their sizes.

    The third are those of the living that a collection condemned and did not live to
    revive. The first are in the order in which they can be deleted: none stands before
    one that is stored against it.
    """
    doomed: dict[ObjectId, int] = {}
    spared: dict[ObjectId, int] = {}
    marked: list[ObjectId] = []
    for one in stored:
        (spared if one.id in alive else doomed)[one.id] = one.stored
        if one.condemned and one.id in alive:
            marked.append(one.id)
    order = sorted(doomed, key=lambda id: _depth(id, bases), reverse=True)
    return {id: doomed[id] for id in order}, spared, marked


def _depth(id: ObjectId, bases: Mapping[ObjectId, ObjectId]) -> int:
    depth = 0
    while id in bases and depth <= MAX_DEPTH:
        id = bases[id]
        depth += 1
    return depth


def _result(freed: dict[ObjectId, int], kept: dict[ObjectId, int], dry_run: bool) -> Collected:
    return Collected(len(kept), sum(kept.values()), len(freed), sum(freed.values()), dry_run)


def _portions(ids: Iterable[ObjectId]) -> Iterator[list[ObjectId]]:
    remaining = iter(ids)
    while some := list(islice(remaining, _DELETED_AT_A_TIME)):
        yield some


def _quiet(step: str, done: int) -> None:
    pass
