"""A store on a key-value store that a user brings. Design note 008 says why it is safe."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeVar

from holdfast.errors import Corrupt, Unavailable
from holdfast.store._checks import expect
from holdfast.store._contract import Store
from holdfast.store._decide import Batch, Facts, Presence, Recorded, decide
from holdfast.store._framing import DEFAULT_CACHE_BYTES
from holdfast.store._key_value import KVStore
from holdfast.store._key_value_calls import Calls
from holdfast.store._key_value_cells import EPOCH, HEADER, ROOT, damaged, seal, unseal
from holdfast.store._key_value_objects import Objects, Raced
from holdfast.store._key_value_records import Record
from holdfast.store._key_value_spaces import Spaces
from holdfast.store._listeners import Listeners
from holdfast.store._records import (
    Capabilities,
    Durability,
    Header,
    LeaseRecord,
    Operation,
    Ref,
    Stored,
    View,
    decode_header,
    encode_header,
)
from holdfast.store._turns import Patience
from holdfast.tree._objects import ObjectId

R = TypeVar("R")

_BUSY_SECONDS = 30.0
_STRIPES = 64


class KeyValueStore(Store):
    """A store on a `KVStore`, for as many processes as that one serves.

    It keeps what the `KVStore` keeps, under keys that begin with `holdfast/`, and survives
    what that one's `durability` says. Each change of a space is one compare-and-set. A
    commit that lost against others for 30 seconds is `Unavailable`. Closing it closes the
    `KVStore`. `KVStore.as_store()` makes one with the defaults, once for each.
    """

    capabilities = Capabilities(persists=True, shared=True, wakes=False)
    poll_seconds: ClassVar[float | None] = 0.05

    def __init__(
        self,
        kv: KVStore,
        *,
        backend_id: str = "key-value",
        backend_aliases: Iterable[str] = (),
        clock: Callable[[], float] = time.monotonic,
        threads: int = 16,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        default_ttl_seconds: float | None = None,
    ) -> None:
        expect(isinstance(kv, KVStore), "a KeyValueStore is made on a KVStore", kv)
        super().__init__(
            backend_id=backend_id,
            backend_aliases=backend_aliases,
            clock=clock,
            threads=threads,
            cache_bytes=cache_bytes,
            default_ttl_seconds=default_ttl_seconds,
        )
        self.kv = kv
        self._durability = _durability_of(kv)
        kept = self._durability != "none"
        self.capabilities = Capabilities(kept, kept, False)  # type: ignore[misc]
        self._calls = Calls(kv)
        self._objects = Objects(self._calls)
        self._log = Spaces(self._calls)
        self._listeners = Listeners()
        self._stripes = [threading.Lock() for _ in range(_STRIPES)]
        self._header = self._open()

    @property
    def header(self) -> Header:
        """The store's id, format and algorithm."""
        return self._header

    @property
    def durability(self) -> Durability:
        """What an acknowledged commit survives, by the word of the `KVStore`."""
        return self._durability

    # Opening and closing.

    def _open(self) -> Header:
        data = self._calls.get(HEADER)
        if data is None:
            self._create()
            data = self._calls.get(HEADER)
        if data is None:
            raise damaged(HEADER)
        return decode_header(unseal(HEADER, data))

    def _create(self) -> None:
        """Make an empty store; the header comes last."""
        others = set(self._calls.keys(ROOT)) - {EPOCH}
        if others and self._calls.get(HEADER) is None:
            raise Corrupt(
                f"the key-value store holds {min(others)!r}, but {HEADER!r} is gone. Nothing was "
                "changed: restore it from a copy, or take another key-value store."
            )
        self._calls.swap(EPOCH, None, seal(EPOCH, 1))
        self._calls.swap(HEADER, None, seal(HEADER, encode_header(Header(os.urandom(16)))))

    def _close(self) -> None:
        self._calls.close()

    # Objects.

    def _frames(self, ids: Sequence[ObjectId]) -> Mapping[ObjectId, bytes]:
        return self._objects.frames(ids)

    def _presence(self, ids: Iterable[ObjectId]) -> Mapping[ObjectId, Presence]:
        return self._objects.presence(list(ids))

    # Commits.

    def _commit(self, batch: Batch) -> Operation:
        recorded, repeated = self._until_swapped(batch.space, lambda: self._attempt(batch))
        if not repeated:
            self._listeners.wake(batch.space)
        return recorded.operation

    def _attempt(self, batch: Batch) -> tuple[Recorded, bool]:
        """Commit a batch, if nobody is faster; what is recorded, and whether it was before."""
        moment = self._to_write(batch.space, [move.name for move in batch.moves])
        decision = decide(batch, self._facts(batch, moment))
        recorded = Recorded(batch.digest, decision.operation)
        if decision.repeated:
            return recorded, True
        # First what nobody points to yet. If it ends here, a collection takes it.
        self._objects.put(decision.frames)
        if not self._log.append(batch.space, moment.raw, moment.record, recorded):
            raise Raced
        return recorded, False

    def _facts(self, batch: Batch, moment: _Moment) -> Facts:
        record = moment.record
        leases = {fence.name: record.leases.get(fence.name) for fence in batch.fences}
        return Facts(
            sequence=record.sequence,
            epoch=record.epoch,
            recorded=self._log.recorded(batch.space, record, batch.write_id),
            refs=moment.targets,
            tokens={name: lease.token for name, lease in leases.items() if lease},
            present=self._presence(batch.asks(record.epoch)),
        )

    def _to_write(self, space: str, names: Iterable[str] = ()) -> _Moment:
        """The record of a space, which is made if it is not there, and where refs are."""
        while True:
            with self._log.looking(space) as found:
                raw, record, refs = found.raw, found.record, found.position.refs
                targets = {name: refs[name].target for name in names if name in refs}
            if raw is None:
                self._log.create(space, self._epoch())
                continue
            if record.sequence == 0:
                # Who raised the epochs may not have known of this space. So the store's own
                # epoch counts, as it is after the record is there to be found.
                record = replace(record, epoch=max(record.epoch, self._epoch()))
            return _Moment(raw, record, targets)

    def _until_swapped(self, space: str, attempt: Callable[[], R]) -> R:
        """Try until nobody was faster. Threads of one store object take turns."""
        with self._stripes[hash(space) % _STRIPES]:
            patience = Patience(_BUSY_SECONDS, first=0.0005, last=0.02)
            while True:
                with suppress(Raced):
                    return attempt()
                if not patience.wait():
                    raise Unavailable(
                        f"the space {space!r} was changed by others at every try for "
                        f"{_BUSY_SECONDS:g} seconds. Nothing was written; try again."
                    )

    def _epoch(self) -> int:
        return _read_epoch(self._calls.get(EPOCH))

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

    def _swap(self, space: str, moment: _Moment, **changes: Any) -> None:
        if not self._log.swap(space, moment.raw, moment.record.changed(**changes)):
            raise Raced

    # Collection.

    def _scan(self) -> Iterator[Stored]:
        return self._objects.scan()

    def _examine(self, read_data: bool) -> Iterable[tuple[str, str]]:
        return self._objects.examine() if read_data else ()

    def _condemn(self, ids: Sequence[ObjectId], collection: int) -> None:
        self._objects.change(ids, lambda cell: cell._replace(collection=collection))

    def _revive(self, ids: Sequence[ObjectId]) -> None:
        self._objects.change(ids, lambda cell: cell._replace(collection=None))

    def _delete(self, ids: Sequence[ObjectId], collection: int) -> list[ObjectId]:
        return self._objects.change(
            ids, lambda cell: None if cell.collection == collection else cell
        )

    def _raise_epochs(self) -> int:
        while True:
            data = self._calls.get(EPOCH)
            raised = _read_epoch(data) + 1
            if self._calls.swap(EPOCH, data, seal(EPOCH, raised)):
                break
        # Whoever makes a space after this sees the new epoch; all others are found now.
        for space in self._log.names(""):
            self._until_swapped(space, partial(self._raise_epoch, space, raised))
        return raised

    def _raise_epoch(self, space: str, epoch: int) -> None:
        moment = self._to_write(space)
        # Also where it is that high already: what was begun before must not succeed.
        self._swap(space, moment, epoch=max(epoch, moment.record.epoch))


class _Moment(NamedTuple):
    """A space that is to be changed."""

    raw: bytes
    record: Record
    targets: Mapping[str, ObjectId]


def _read_epoch(data: bytes | None) -> int:
    epoch = None if data is None else unseal(EPOCH, data)
    if not isinstance(epoch, int):
        raise damaged(EPOCH)
    return epoch


def _durability_of(kv: KVStore) -> Durability:
    durability = kv.durability
    known = durability in ("full", "relaxed", "none")
    expect(known, f"{type(kv).__name__}.durability is 'full', 'relaxed' or 'none'", durability)
    return durability
