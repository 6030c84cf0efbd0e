"""Stores with one fault each, to see that the contract suite finds it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from ropewalk.errors import Conflict
from ropewalk.store import (
    Batch,
    Decision,
    Facts,
    LeaseRecord,
    MemoryStore,
    Operation,
    Presence,
    Recorded,
    Ref,
    Stored,
    View,
    decide,
)
from ropewalk.store._memory import _Space
from ropewalk.tree import ObjectId


class IgnoresExpected(MemoryStore):
    def _facts(self, batch: Batch) -> Facts:
        expected = {move.name: move.expected for move in batch.moves if move.expected}
        return super()._facts(batch)._replace(refs=expected)


class ForgetsWrites(MemoryStore):
    def _facts(self, batch: Batch) -> Facts:
        return super()._facts(batch)._replace(recorded=None)


class TakesAnyWriteForTheSame(MemoryStore):
    def _facts(self, batch: Batch) -> Facts:
        facts = super()._facts(batch)
        if facts.recorded is None:
            return facts
        return facts._replace(recorded=Recorded(batch.digest, facts.recorded.operation))


class SharesWriteIdsBetweenSpaces(MemoryStore):
    def _facts(self, batch: Batch) -> Facts:
        spaces = self._data.spaces.values()
        found = [one.writes[batch.write_id] for one in spaces if batch.write_id in one.writes]
        return super()._facts(batch)._replace(recorded=found[0] if found else None)


class IgnoresFences(MemoryStore):
    def _commit(self, batch: Batch) -> Operation:
        return super()._commit(replace(batch, fences=()))


class ChecksOneFence(MemoryStore):
    def _commit(self, batch: Batch) -> Operation:
        return super()._commit(replace(batch, fences=batch.fences[:1]))


class IgnoresNeeds(MemoryStore):
    def _commit(self, batch: Batch) -> Operation:
        return super()._commit(replace(batch, needs=frozenset()))


class IgnoresTargets(MemoryStore):
    def _commit(self, batch: Batch) -> Operation:
        return super()._commit(replace(batch, targets=frozenset()))


class ForgetsCondemnation(MemoryStore):
    def _presence(self, ids: Iterable[ObjectId]) -> dict[ObjectId, Presence]:
        found = super()._presence(ids)
        return {id: Presence(one.depth, False) for id, one in found.items()}


class DeletesTheLiving(MemoryStore):
    def _delete(self, ids: Sequence[ObjectId], collection: int) -> list[ObjectId]:
        self._condemn(ids, collection)
        return super()._delete(ids, collection)


class DeletesWhatOthersCondemned(MemoryStore):
    def _delete(self, ids: Sequence[ObjectId], collection: int) -> list[ObjectId]:
        self._condemn([id for id in ids if id in self._data.condemned], collection)
        return super()._delete(ids, collection)


class NeverRevives(MemoryStore):
    def _apply(self, space: _Space, batch: Batch, decision: Decision) -> None:
        doomed = dict(self._data.condemned)
        super()._apply(space, batch, decision)
        self._data.condemned |= doomed


class TrustsOldEpochs(MemoryStore):
    def _commit(self, batch: Batch) -> Operation:
        current = None if batch.epoch is None else self._data.epoch
        return super()._commit(replace(batch, epoch=current))


class NeverRaisesEpochs(MemoryStore):
    def _raise_epochs(self) -> int:
        return self._data.epoch + 1


class StoresBeforeItChecks(MemoryStore):
    def _commit(self, batch: Batch) -> Operation:
        try:
            return super()._commit(batch)
        except Conflict:
            self._data.add(batch.frames)
            raise


class SkipsNumbers(MemoryStore):
    def _facts(self, batch: Batch) -> Facts:
        facts = super()._facts(batch)
        return facts._replace(sequence=2 * facts.sequence)


class IsNotAtomic(MemoryStore):
    def _commit(self, batch: Batch) -> Operation:
        decision = decide(batch, self._facts(batch))
        time.sleep(0.0001)  # Others may go first.
        if not decision.repeated:
            self._apply(self._data.space(batch.space), batch, decision)
        return decision.operation


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


class HidesTheCondemned(MemoryStore):
    def _frames(self, ids: Sequence[ObjectId]) -> dict[ObjectId, bytes]:
        return super()._frames([id for id in ids if id not in self._data.condemned])


class ScansOnlyTheLiving(MemoryStore):
    def _scan(self) -> Iterator[Stored]:
        return (one for one in super()._scan() if not one.condemned)


class IgnoresDepth(MemoryStore):
    def _presence(self, ids: Iterable[ObjectId]) -> dict[ObjectId, Presence]:
        found = super()._presence(ids)
        return {id: Presence(0, one.condemned) for id, one in found.items()}


FAULTY = [
    cls for cls in list(globals().values())
    if isinstance(cls, type) and issubclass(cls, MemoryStore) and cls is not MemoryStore
]  # fmt: skip
