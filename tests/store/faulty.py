"""Stores with one fault each, to see that the contract suite finds it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from copy import copy
from fnmatch import fnmatchcase
from typing import Any

from ropewalk.errors import Conflict
from ropewalk.store import LeaseRecord, MemoryStore, Operation, Ref, View
from ropewalk.store.collection import Sweep
from ropewalk.store.engine import Append, Stored
from ropewalk.store.log import expect_refs
from ropewalk.store.memory import Space
from ropewalk.tree import ObjectId


def changed(append: Append, **fields: Any) -> Append:
    """A commit with other fields."""
    made = copy(append)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


class IgnoresExpected(MemoryStore):
    def _commit(self, batch: Append) -> Operation:
        refs = self._data.space(batch.space).refs
        moves = [
            one._replace(expected=refs[one.name].target if one.name in refs else None)
            if one.expected
            else one
            for one in batch.moves
        ]
        return super()._commit(changed(batch, moves=tuple(moves)))


class ForgetsWrites(MemoryStore):
    def _recorded(self, space: Space, batch: Append) -> Operation | None:
        return None


class TakesAnyWriteForTheSame(MemoryStore):
    def _recorded(self, space: Space, batch: Append) -> Operation | None:
        found = [one for one in space.operations if one.write_id == batch.write_id]
        return found[0] if found else None


class SharesWriteIdsBetweenSpaces(MemoryStore):
    def _recorded(self, space: Space, batch: Append) -> Operation | None:
        found = [
            super(type(self), self)._recorded(one, batch) for one in self._data.spaces.values()
        ]
        return next((one for one in found if one is not None), None)


class RemembersNoWriteForLong(MemoryStore):
    def _recorded(self, space: Space, batch: Append) -> Operation | None:
        found = super()._recorded(space, batch)
        return found if found is not None and found.sequence > len(space.operations) - 9 else None


class IgnoresFences(MemoryStore):
    def _commit(self, batch: Append) -> Operation:
        return super()._commit(changed(batch, fences=()))


class ChecksOneFence(MemoryStore):
    def _commit(self, batch: Append) -> Operation:
        return super()._commit(changed(batch, fences=batch.fences[:1]))


class IgnoresNeeds(MemoryStore):
    def _commit(self, batch: Append) -> Operation:
        gone = tuple([id for id in batch.missing if id not in batch.needs])
        return super()._commit(changed(batch, missing=gone))


class IgnoresTargets(MemoryStore):
    def _commit(self, batch: Append) -> Operation:
        gone = tuple([id for id in batch.missing if id not in batch.targets])
        return super()._commit(changed(batch, missing=gone))


class KeepsGarbage(MemoryStore):
    def _replace(self, space: str, found: Sweep) -> bool:
        return True


class DeletesWhatIsShared(MemoryStore):
    def _collect_shared(self, named: set[ObjectId] | None) -> tuple[int, int]:
        return super()._collect_shared(named) if named is not None else self._drop()

    def _drop(self) -> tuple[int, int]:
        found = self._count_shared()
        self._discard(list(self._data.shared))
        return found


class StoresBeforeItChecks(MemoryStore):
    def _commit(self, batch: Append) -> Operation:
        try:
            return super()._commit(batch)
        except Conflict:
            super()._commit(changed(batch, moves=(), fences=()))
            raise


class SkipsNumbers(MemoryStore):
    def _commit(self, batch: Append) -> Operation:
        done = super()._commit(batch)
        return done._replace(sequence=2 * done.sequence)


class IsNotAtomic(IgnoresExpected):
    def _commit(self, batch: Append) -> Operation:
        expect_refs(batch, self._data.space(batch.space).refs)
        time.sleep(0.0001)  # Others may go first.
        return super()._commit(batch)


class GrantsToEverybody(MemoryStore):
    def _grant_lease(
        self, space: str, name: str, expected: LeaseRecord | None, holder: str, duration: float
    ) -> LeaseRecord | None:
        now = self._lease(space, name)
        return super()._grant_lease(space, name, now, holder, duration)

    def _lease(self, space: str, name: str) -> LeaseRecord | None:
        return None


class ReusesTokens(MemoryStore):
    def _swap_lease(self, space: str, expected: LeaseRecord, record: LeaseRecord | None) -> bool:
        if record is None:
            self._data.space(space).tokens = 0
        return super()._swap_lease(space, expected, record)


class HidesRenewals(MemoryStore):
    def _lease(self, space: str, name: str) -> LeaseRecord | None:
        found = super()._lease(space, name)
        return None if found is None else found._replace(beat=0)

    def _swap_lease(self, space: str, expected: LeaseRecord, record: LeaseRecord | None) -> bool:
        now = super()._lease(space, expected.name)
        return now is not None and super()._swap_lease(
            space, now, None if record is None else record._replace(beat=0)
        )


class ReadsPrefixesAsPatterns(MemoryStore):
    def _view(self, space: str, prefix: str) -> View:
        view = super()._view(space, "")
        pattern = prefix.replace("_", "?").replace("%", "*") + "*"
        return view._replace(refs=tuple(one for one in view.refs if fnmatchcase(one.name, pattern)))


class FoldsCase(MemoryStore):
    def _ref(self, space: str, name: str) -> Ref | None:
        for ref in self._view(space, "").refs:
            if ref.name.lower() == name.lower():
                return ref
        return None


class ShowsNoOrder(MemoryStore):
    def _view(self, space: str, prefix: str) -> View:
        view = super()._view(space, prefix)
        return view._replace(refs=tuple(reversed(view.refs)))


class ScansOnlyRecords(MemoryStore):
    def _scan_shared(self) -> Iterator[Stored]:
        return iter(())


class FindsNothing(MemoryStore):
    def _find(self, space: str, key: bytes) -> list[int]:
        return []


FAULTY = [
    cls for cls in list(globals().values())
    if isinstance(cls, type) and issubclass(cls, MemoryStore) and cls is not MemoryStore
]  # fmt: skip
