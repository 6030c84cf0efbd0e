"""Migration: everything that a store holds, into another of any engine.

Objects come first, then each space's refs and log, then the names that the source goes
by. A run that ended early left nothing that the next one would not recognise. See
docs/in-depth/care.md for what is promised.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ropewalk.errors import Conflict, InvalidInput, MissingObjects, RefMoved
from ropewalk.store._checking import Problem
from ropewalk.store._collecting import Progress
from ropewalk.store._contract import Store
from ropewalk.store._copying import Copier
from ropewalk.store._joining import join
from ropewalk.store._own import (
    ALIAS,
    CONTENT_SPACE,
    OWN_SPACE,
    alias_ref,
    arriving_ref,
    manifest_before,
)
from ropewalk.store._records import Move, Operation, View
from ropewalk.store._replaying import EpochRaised, position, refs_of, replay
from ropewalk.tree import TreeWriter, load

if TYPE_CHECKING:
    from ropewalk.tree import ObjectId

_ATTEMPTS = 3  # How often a source may collect what a ref led to when we began.


@dataclass(frozen=True, slots=True)
class Migrated:
    """What a migration did."""

    objects: int
    """Objects that were copied."""
    bytes: int
    """Bytes of their frames."""
    present: int
    """Objects that the target had already."""
    spaces: int
    operations: int
    """Operations that were added to the target's logs."""
    lost: tuple[Problem, ...]
    """Objects that are damaged, or missing although something points to them."""
    left: tuple[str, ...]
    """Refs, as `tenant/space/kind/name`, that lead to those and were not moved."""


def migrate(
    source: Store, target: Store, *, keep_going: bool = False, progress: Progress | None = None
) -> Migrated:
    """Copy all objects, refs and operations of a store into another, of any engine.

    Can be run again: after it was killed it goes on, and later it brings what is new.
    Others may use the source meanwhile; what arrives is the source as it was when this
    began, or later. The source is not changed. Ids stay what they are, and the target
    then answers to the source's backend id.

    References of both stores come together. Raises `Conflict`, with nothing copied, if
    another space has a history of its own in the target. Raises `MissingObjects` or
    `DamagedObject`, after everything else was copied, if a ref leads to an object that
    cannot be read; with `keep_going` such refs stay behind and are listed instead.
    """
    for store in (source, target):
        if not isinstance(store, Store):
            raise InvalidInput(f"migrate takes two stores, not {store!r:.80}")
        store._check_open()
    return _Migration(source, target, keep_going, progress or _quiet).run()


async def amigrate(
    source: Store, target: Store, *, keep_going: bool = False, progress: Progress | None = None
) -> Migrated:
    """The asynchronous twin of `migrate`; it runs on a thread of the target."""
    call = partial(migrate, source, target, keep_going=keep_going, progress=progress)
    return await target._threads.run(call)


class _Migration:
    def __init__(self, source: Store, target: Store, keep_going: bool, tell: Progress) -> None:
        self._source, self._target = source, target
        self._keep_going, self._tell = keep_going, tell
        self._copier = Copier(source, target, tell)
        self._broken: dict[ObjectId, ObjectId] = {}
        self._operations = self._attempts = 0

    def run(self) -> Migrated:
        moment = self._moment()
        self._refuse_other_histories(moment)
        while not self._bring(moment):
            moment = self._moment()
        lost = tuple(one.problem for one in self._copier.lost.values())
        left = [
            f"{space}/{name}"
            for space, view in moment.items()
            for name, id in refs_of(view).items()
            if id in self._broken
        ]
        self._remember_names()
        if not left:
            self._let_go()
        copier = self._copier
        return Migrated(
            copier.copied,
            copier.copied_bytes,
            copier.present,
            len(moment),
            self._operations,
            lost,
            tuple(left),
        )

    def _moment(self) -> dict[str, View]:
        spaces = [space for space in self._source.spaces() if space != OWN_SPACE]
        return {space: self._source.view(space) for space in spaces}

    def _refuse_other_histories(self, moment: dict[str, View]) -> None:
        strange = [
            space
            for space, view in moment.items()
            if space != CONTENT_SPACE and self._is_strange(space, view)
        ]
        if strange:
            shown = ", ".join(strange[:3]) + (" and more" if len(strange) > 3 else "")
            raise Conflict(
                f"{len(strange)} space(s) have a history of their own in the target: {shown}. "
                "Nothing was copied. Migrate into a store without them."
            )

    def _is_strange(self, space: str, view: View) -> bool:
        if position(self._source, self._target, space) is not None:
            return False
        return refs_of(self._target.view(space)) != refs_of(view)

    def _bring(self, moment: dict[str, View]) -> bool:
        """Objects, then spaces; False if it must be done again from a new moment.

        Epochs are read before any object is looked for. As long as a space's epoch is
        the same when its refs move, no collection has condemned what was seen since:
        or it will look at the refs after it has, and take that back.
        """
        epochs = {space: self._target.view(space).epoch for space in moment}
        self._copier.copy()
        self._copier.require(ref.target for view in moment.values() for ref in view.refs)
        self._broken = self._copier.broken()
        if not self._keep_going and not self._is_whole(moment):
            return False
        try:
            for space, view in moment.items():
                self._replay(space, view, epochs[space])
        except EpochRaised:
            return False
        return True

    def _is_whole(self, moment: dict[str, View]) -> bool:
        """True if every ref leads to something whole; raises if one never will."""
        for space, view in moment.items():
            for name, id in refs_of(view).items():
                if id not in self._broken:
                    continue
                moved = self._source.view(space).sequence != view.sequence
                if moved and self._attempts < _ATTEMPTS:
                    self._attempts += 1
                    return False  # It was collected since: the ref is elsewhere by now.
                error = self._copier.lost[self._broken[id]].error
                error.add_note(
                    f"Ref {name} of {space} leads to it. All else was copied; restore it in the "
                    "source and migrate again, or leave such refs behind with keep_going=True."
                )
                raise error
        return True

    def _replay(self, space: str, view: View, epoch: int) -> None:
        if position(self._source, self._target, space) is None:
            if refs_of(self._target.view(space)) == refs_of(view):
                return
            if space == CONTENT_SPACE:
                self._count(join(self._target, space, view, epoch, self._broken))
                return
            raise Conflict(
                f"somebody else writes to space {space} of the target. Let one store be "
                "written at a time, then migrate again."
            )
        self._count(replay(self._source, self._target, space, view, epoch, self._whole))

    def _count(self, done: Iterable[Operation]) -> None:
        for _ in done:
            self._operations += 1
            self._tell("replaying", self._operations)

    def _whole(self, ids: Iterable[ObjectId]) -> set[ObjectId]:
        asked = [id for id in ids if id not in self._broken]
        here, there = self._source._presence(asked), self._target._presence(asked)
        known = here.keys() | self._copier.only_there
        return {id for id in asked if id in known and id in there and not there[id].condemned}

    def _remember_names(self) -> None:
        target = self._target
        for name in self._names():
            # One that it was opened with has to be kept too: next time it may not be given.
            if name != target.backend_id and target.ref(OWN_SPACE, alias_ref(name)) is None:
                written = TreeWriter().write(name)
                move = Move(alias_ref(name), None, written.root)
                target.commit(OWN_SPACE, written.objects, written.needs, [move])

    def _let_go(self) -> None:
        """What arrived is kept by the refs that need it from here on."""
        target = self._target
        ref = target.ref(OWN_SPACE, arriving_ref(self._source.header.store_id))
        if ref is None:
            return
        manifests = self._manifests(ref.target)
        with suppress(RefMoved):  # By another migration, which lets go of it later.
            target.commit(OWN_SPACE, moves=[Move(ref.name, ref.target, None)])
            # Nothing else leads to them, and nothing is stored against them.
            collection = secrets.randbelow(2**62) + 1
            target._condemn(manifests, collection)
            target._delete(manifests, collection)

    def _manifests(self, last: ObjectId) -> list[ObjectId]:
        """What kept what arrived, back to the first."""
        found: list[ObjectId] = []
        following: ObjectId | None = last
        with suppress(MissingObjects):
            while following is not None:
                (one,) = self._target.read([following])
                found.append(following)
                following = manifest_before(one)
        return found

    def _names(self) -> list[str]:
        """What the source answers to."""
        source = self._source
        remembered = [load(ref.target, source.read) for ref in source.refs(OWN_SPACE, ALIAS)]
        return list(dict.fromkeys([source.backend_id, *source.backend_aliases, *remembered]))


def _quiet(step: str, done: int) -> None:
    pass
