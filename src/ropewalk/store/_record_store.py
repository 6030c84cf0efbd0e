"""What engines share that keep each space in one record, changed by compare-and-set.

The records are those of `_key_value_records`. Where objects are, and how they are collected,
is the engine's own. Design note 008 says why this is safe.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeVar

from ropewalk.errors import RopewalkError, Unavailable
from ropewalk.store._decide import Batch, Facts, Presence, Recorded, Reframe, decide
from ropewalk.store._framing import Framed
from ropewalk.store._key_value_objects import Raced
from ropewalk.store._key_value_records import Record
from ropewalk.store._key_value_spaces import Spaces
from ropewalk.store._listeners import Listeners
from ropewalk.store._object_store import ObjectStore
from ropewalk.store._order import Below
from ropewalk.store._records import LeaseRecord, Operation, Ref, View
from ropewalk.store._turns import Patience
from ropewalk.store.forking import freed_after_fork
from ropewalk.tree.objects import ObjectId

R = TypeVar("R")

_BUSY_SECONDS = 30.0
_STRIPES = 256


class RecordStore(ObjectStore):
    """A store whose spaces are records. An engine sets `_log`, and supplies what is abstract."""

    _log: Spaces
    _waits: ClassVar[tuple[float, float]] = 0.0005, 0.02
    """How long to wait, at first and at last, before a swap that lost is tried again."""
    _recalls: ClassVar[bool] = False
    """Whether a commit first tries with the record that this store object saw last."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._listeners = Listeners()
        self._stripes = [freed_after_fork(threading.Lock()) for _ in range(_STRIPES)]

    # What an engine supplies.

    @abstractmethod
    def _epoch(self) -> int:
        """The latest epoch of the store, as it is now."""

    @abstractmethod
    def _present(self, batch: Batch, epoch: int) -> Mapping[ObjectId, Presence]:
        """What the engine knows of `batch.asks(epoch)`; at least as new as the epoch."""

    @abstractmethod
    def _keep(self, frames: Sequence[Framed], epoch: int, below: Below) -> None:
        """Store frames, none before what it points to. If it ends here, they are garbage."""

    # Commits.

    def _commit(self, batch: Batch) -> Operation:
        recalls = self._recalls

        def attempt() -> tuple[Recorded, bool]:
            nonlocal recalls
            if recalls:
                recalls = False
                # What is refused on the ground of an old record may be allowed on the new one.
                with suppress(RopewalkError, Reframe):
                    return self._attempt(batch, recall=True)
            return self._attempt(batch)

        recorded, repeated = self._until_swapped(batch.space, attempt)
        if not repeated:
            self._listeners.wake(batch.space)
        return recorded.operation

    def _attempt(self, batch: Batch, recall: bool = False) -> tuple[Recorded, bool]:
        """Commit a batch, if nobody is faster; what is recorded, and whether it was before."""
        moment = self._to_write(batch.space, [move.name for move in batch.moves], recall)
        decision = decide(batch, self._facts(batch, moment))
        recorded = Recorded(batch.digest, decision.operation)
        if decision.repeated:
            return recorded, True
        self._keep(decision.frames, moment.record.epoch, batch.below)
        if not self._log.append(batch.space, moment.raw, moment.record, recorded):
            raise Raced
        return recorded, False

    def _facts(self, batch: Batch, moment: Moment) -> Facts:
        record = moment.record
        leases = {fence.name: record.leases.get(fence.name) for fence in batch.fences}
        return Facts(
            sequence=record.sequence,
            epoch=record.epoch,
            recorded=self._log.recorded(batch.space, record, batch.write_id),
            refs=moment.targets,
            tokens={name: lease.token for name, lease in leases.items() if lease},
            present=self._present(batch, record.epoch),
        )

    def _to_write(self, space: str, names: Iterable[str] = (), recall: bool = False) -> Moment:
        """The record of a space, which is made if it is not there, and where refs are."""
        while True:
            with self._log.recalling(space) if recall else self._log.looking(space) as found:
                raw, record, refs = found.raw, found.record, found.position.refs
                targets = {name: refs[name].target for name in names if name in refs}
            if raw is None:
                if not recall:
                    self._log.create(space, self._epoch())
                recall = False
                continue
            if record.sequence == 0:
                # Who raised the epochs may not have known of this space. So the store's own
                # epoch counts, as it is after the record is there to be found.
                record = replace(record, epoch=max(record.epoch, self._epoch()))
            return Moment(raw, record, targets)

    def _until_swapped(self, space: str, attempt: Callable[[], R]) -> R:
        """Try until nobody was faster. Threads of one store object take turns."""
        with self._stripes[hash(space) % _STRIPES]:
            patience = Patience(_BUSY_SECONDS, *self._waits)
            while True:
                with suppress(Raced):
                    return attempt()
                if not patience.wait():
                    raise Unavailable(
                        f"the space {space!r} was changed by others at every try for "
                        f"{_BUSY_SECONDS:g} seconds. Nothing was written; try again."
                    )

    # Spaces.

    def _ref(self, space: str, name: str) -> Ref | None:
        with self._log.looking(space) as found:
            return found.position.refs.get(name)

    def _view(self, space: str, prefix: str) -> View:
        with self._log.looking(space) as found:
            record = found.record
            refs = [ref for ref in found.position.refs.values() if ref.name.startswith(prefix)]
        # A space without operations begins with the store's epoch.
        epoch = record.epoch if record.sequence else max(record.epoch, self._epoch())
        return View(record.sequence, epoch, tuple(sorted(refs)))

    def _spaces(self, prefix: str) -> list[str]:
        return self._log.with_operations(prefix)

    def _operations(self, space: str, after: int, limit: int) -> list[Operation]:
        return self._log.operations(space, after, limit)

    def _subscribe(self, space: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Wakes for what this store object commits; what others commit is looked for."""
        return self._listeners.add(space, wake)

    # Leases.

    def _lease(self, space: str, name: str) -> LeaseRecord | None:
        record = self._log.record(space)
        return None if record is None else record.leases.get(name)

    def _leases(self, space: str, prefix: str) -> list[LeaseRecord]:
        record = self._log.record(space)
        held = {} if record is None else record.leases
        return sorted(one for name, one in held.items() if name.startswith(prefix))

    def _grant_lease(
        self, space: str, name: str, expected: LeaseRecord | None, holder: str, duration: float
    ) -> LeaseRecord | None:
        def grant() -> LeaseRecord | None:
            moment = self._to_write(space)
            record = moment.record
            if record.leases.get(name) != expected:
                return None
            granted = LeaseRecord(name, holder, record.tokens + 1, 0, duration)
            leases = {**record.leases, name: granted}
            self._swap(space, moment, tokens=granted.token, leases=leases)
            return granted

        return self._until_swapped(space, grant)

    def _swap_lease(self, space: str, expected: LeaseRecord, record: LeaseRecord | None) -> bool:
        def swap() -> bool:
            moment = self._to_write(space)
            leases = dict(moment.record.leases)
            if leases.get(expected.name) != expected:
                return False
            del leases[expected.name]
            if record is not None:
                leases[record.name] = record
            self._swap(space, moment, leases=leases)
            return True

        return self._until_swapped(space, swap)

    def _swap(self, space: str, moment: Moment, **changes: Any) -> None:
        if not self._log.swap(space, moment.raw, moment.record.changed(**changes)):
            raise Raced

    # Epochs.

    def _raise_every(self, epoch: int) -> None:
        """Raise the epoch of every space; the store's own is raised before.

        Whoever makes a space after that sees the new epoch; all others are found now.
        """
        for space in self._log.names(""):
            self._until_swapped(space, partial(self._raise_epoch, space, epoch))

    def _raise_epoch(self, space: str, epoch: int) -> None:
        moment = self._to_write(space)
        # Also where it is that high already: what was begun before must not succeed.
        self._swap(space, moment, epoch=max(epoch, moment.record.epoch))


class Moment(NamedTuple):
    """A space that is to be changed."""

    raw: bytes
    record: Record
    targets: Mapping[str, ObjectId]
