"""A store in memory: for tests, for short-lived work, and to show what an engine is."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar, NamedTuple

from ropewalk.store._decide import Batch, Decision, Facts, Presence, Recorded, decide
from ropewalk.store._frames import MAX_DEPTH, parse_header
from ropewalk.store._framing import Framed
from ropewalk.store._object_store import ObjectStore
from ropewalk.store._packs import build_pack
from ropewalk.store._records import (
    REMEMBERED_WRITES,
    Capabilities,
    Durability,
    Header,
    LeaseRecord,
    Operation,
    Ref,
    Stored,
    View,
)
from ropewalk.store._room import expect_room
from ropewalk.store.forking import whole_after_fork
from ropewalk.tree.objects import ObjectId


class Sizes(NamedTuple):
    """How much a store holds."""

    objects: int
    packs: int
    frame_bytes: int
    """Bytes of the frames that can be read."""
    pack_bytes: int
    """Bytes of the packs they are in."""
    written_bytes: int
    """Bytes of all frames that were ever written, gone or not."""


class _Place(NamedTuple):
    pack: int
    offset: int
    length: int
    depth: int


class _Space:
    """What belongs to one space."""

    def __init__(self) -> None:
        self.refs: dict[str, Ref] = {}
        self.operations: list[Operation] = []
        self.writes: OrderedDict[str, Recorded] = OrderedDict()
        self.leases: dict[str, LeaseRecord] = {}
        self.tokens = 0
        self.wakes: list[Callable[[], None]] = []


_PRESENT = [(Presence(depth, False), Presence(depth, True)) for depth in range(MAX_DEPTH + 1)]


class _Data:
    """What several `MemoryStore`s on the same memory share, under one lock."""

    def __init__(self) -> None:
        self.lock = whole_after_fork(threading.RLock())
        self.header = Header(os.urandom(16))
        self.epoch = 1
        self.spaces: dict[str, _Space] = {}
        self.packs: dict[int, bytes] = {}
        self.index: dict[ObjectId, _Place] = {}
        self.condemned: dict[ObjectId, int] = {}
        """Which collection condemned what."""
        self.alive_bytes: dict[int, int] = {}
        self.last_pack = 0
        self.written_bytes = 0

    def frame(self, id: ObjectId) -> bytes:
        place = self.index[id]
        return self.packs[place.pack][place.offset : place.offset + place.length]

    def add(self, frames: Iterable[Framed]) -> None:
        pack = build_pack(frames)
        if not pack.entries:
            return
        self.last_pack += 1
        self.packs[self.last_pack] = pack.data
        self.alive_bytes[self.last_pack] = 0
        for id, offset, length, depth in pack.entries:
            self.remove(id)
            self.index[id] = _Place(self.last_pack, offset, length, depth)
            self.alive_bytes[self.last_pack] += length

    def remove(self, id: ObjectId) -> int | None:
        """Take an object out of the index; the pack that it was in."""
        self.condemned.pop(id, None)
        place = self.index.pop(id, None)
        if place is None:
            return None
        self.alive_bytes[place.pack] -= place.length
        return place.pack

    def repack(self, numbers: set[int]) -> None:
        """Rewrite those of the packs that are less than half alive."""
        thin = {one for one in numbers if 2 * self.alive_bytes[one] < len(self.packs[one])}
        moved: list[Framed] = []
        for id, place in self.index.items():
            if place.pack in thin:
                moved.append(Framed(id, self.frame(id), None, place.depth))
        doomed = {one.id: self.condemned[one.id] for one in moved if one.id in self.condemned}
        self.add(moved)
        self.condemned |= doomed
        for number in thin:
            del self.packs[number], self.alive_bytes[number]

    def space(self, name: str) -> _Space:
        """A space, made if it is not there."""
        return self.spaces.setdefault(name, _Space())


class MemoryStore(ObjectStore):
    """A store that ends with its process.

    `another()` gives a second store object on the same memory, with its own clock and
    caches, as a second process would have on a shared engine.
    """

    capabilities = Capabilities(persists=False, shared=False, wakes=True)
    poll_seconds: ClassVar[float | None] = None

    def __init__(
        self,
        *,
        backend_id: str = "memory",
        backend_aliases: Iterable[str] = (),
        clock: Callable[[], float] = time.monotonic,
        size_limit: int | None = None,
        default_ttl_seconds: float | None = None,
    ) -> None:
        super().__init__(
            backend_id=backend_id,
            backend_aliases=backend_aliases,
            clock=clock,
            size_limit=size_limit,
            default_ttl_seconds=default_ttl_seconds,
        )
        self._data = _Data()

    def another(self, *, clock: Callable[[], float] = time.monotonic) -> MemoryStore:
        """Another store object on the same memory."""
        store = MemoryStore(
            backend_id=self.backend_id,
            backend_aliases=self.backend_aliases,
            clock=clock,
            size_limit=self.size_limit,
            default_ttl_seconds=self.default_ttl_seconds,
        )
        store._data = self._data
        return store

    @property
    def header(self) -> Header:
        """The store's id, format and algorithm."""
        return self._data.header

    @property
    def durability(self) -> Durability:
        """Memory survives nothing."""
        return "none"

    @property
    def sizes(self) -> Sizes:
        """How many objects and bytes the store holds, and how many were written."""
        data = self._data
        with data.lock:
            return Sizes(
                len(data.index),
                len(data.packs),
                sum(data.alive_bytes.values()),
                sum(len(pack) for pack in data.packs.values()),
                data.written_bytes,
            )

    def _frames(self, ids: Sequence[ObjectId]) -> dict[ObjectId, bytes]:
        data = self._data
        with data.lock:
            return {id: data.frame(id) for id in ids if id in data.index}

    def _presence(self, ids: Iterable[ObjectId]) -> dict[ObjectId, Presence]:
        data = self._data
        with data.lock:
            index, condemned = data.index, data.condemned
            return {
                id: _PRESENT[place.depth][id in condemned]
                for id in ids
                if (place := index.get(id)) is not None
            }

    def _commit(self, batch: Batch) -> Operation:
        with self._data.lock:
            decision = decide(batch, self._facts(batch))
            if decision.repeated:
                return decision.operation
            if decision.frames and self.size_limit is not None:
                used = sum(len(pack) for pack in self._data.packs.values())
                expect_room(used, sum(len(one.frame) for one in decision.frames), self.size_limit)
            space = self._data.space(batch.space)
            self._apply(space, batch, decision)
            wakes = tuple(space.wakes)
        for wake in wakes:
            wake()
        return decision.operation

    def _facts(self, batch: Batch) -> Facts:
        data = self._data
        space = data.spaces.get(batch.space) or _Space()
        refs = {move.name: space.refs.get(move.name) for move in batch.moves}
        leases = {fence.name: space.leases.get(fence.name) for fence in batch.fences}
        return Facts(
            sequence=len(space.operations),
            epoch=data.epoch,
            recorded=space.writes.get(batch.write_id),
            refs={name: ref.target for name, ref in refs.items() if ref},
            tokens={name: lease.token for name, lease in leases.items() if lease},
            present=self._presence(batch.asks(data.epoch)),
        )

    def _apply(self, space: _Space, batch: Batch, decision: Decision) -> None:
        operation = decision.operation
        self._data.add(decision.frames)
        self._data.written_bytes += sum(len(one.frame) for one in decision.frames)
        for name, _, target in operation.moves:
            if target is None:
                space.refs.pop(name, None)
            else:
                space.refs[name] = Ref(name, target, operation.sequence)
        space.operations.append(operation)
        space.writes[batch.write_id] = Recorded(batch.digest, operation)
        while len(space.writes) > REMEMBERED_WRITES:
            space.writes.popitem(last=False)

    def _ref(self, space: str, name: str) -> Ref | None:
        with self._data.lock:
            found = self._data.spaces.get(space)
            return None if found is None else found.refs.get(name)

    def _view(self, space: str, prefix: str) -> View:
        with self._data.lock:
            found = self._data.spaces.get(space) or _Space()
            refs = sorted(ref for name, ref in found.refs.items() if name.startswith(prefix))
            return View(len(found.operations), self._data.epoch, tuple(refs))

    def _spaces(self, prefix: str) -> list[str]:
        with self._data.lock:
            spaces = self._data.spaces.items()
            return sorted(
                name for name, space in spaces if space.operations and name.startswith(prefix)
            )

    def _operations(self, space: str, after: int, limit: int) -> list[Operation]:
        with self._data.lock:
            found = self._data.spaces.get(space)
            return [] if found is None else found.operations[after : after + limit]

    def _lease(self, space: str, name: str) -> LeaseRecord | None:
        with self._data.lock:
            found = self._data.spaces.get(space)
            return None if found is None else found.leases.get(name)

    def _leases(self, space: str, prefix: str) -> list[LeaseRecord]:
        with self._data.lock:
            found = self._data.spaces.get(space) or _Space()
            return sorted(one for name, one in found.leases.items() if name.startswith(prefix))

    def _grant_lease(
        self, space: str, name: str, expected: LeaseRecord | None, holder: str, duration: float
    ) -> LeaseRecord | None:
        with self._data.lock:
            found = self._data.space(space)
            if found.leases.get(name) != expected:
                return None
            found.tokens += 1
            granted = found.leases[name] = LeaseRecord(name, holder, found.tokens, 0, duration)
            return granted

    def _swap_lease(self, space: str, expected: LeaseRecord, record: LeaseRecord | None) -> bool:
        with self._data.lock:
            leases = self._data.space(space).leases
            if leases.get(expected.name) != expected:
                return False
            if record is None:
                del leases[expected.name]
            else:
                leases[expected.name] = record
            return True

    def _scan(self) -> Iterator[Stored]:
        with self._data.lock:
            ids = list(self._data.index)
        for id in ids:
            with self._data.lock:
                if id not in self._data.index:
                    continue
                frame, condemned = self._data.frame(id), id in self._data.condemned
            header = parse_header(frame)
            yield Stored(id, header.kind, header.length, len(frame), header.base, condemned)

    def _disk_bytes(self) -> int:
        return self.sizes.pack_bytes

    def _condemn(self, ids: Sequence[ObjectId], collection: int) -> None:
        with self._data.lock:
            self._data.condemned.update((id, collection) for id in ids if id in self._data.index)

    def _revive(self, ids: Sequence[ObjectId]) -> None:
        with self._data.lock:
            for id in ids:
                self._data.condemned.pop(id, None)

    def _raise_epochs(self) -> int:
        with self._data.lock:
            self._data.epoch += 1
            return self._data.epoch

    def _delete(self, ids: Sequence[ObjectId], collection: int) -> list[ObjectId]:
        data = self._data
        with data.lock:
            deleted = [id for id in ids if data.condemned.get(id) == collection]
            touched = {data.remove(id) for id in deleted}
            data.repack({pack for pack in touched if pack is not None})
            return deleted

    def _subscribe(self, space: str, wake: Callable[[], None]) -> Callable[[], None]:
        with self._data.lock:
            wakes = self._data.space(space).wakes
            wakes.append(wake)

        def stop() -> None:
            with self._data.lock:
                wakes.remove(wake)

        return stop

    def _close(self) -> None:
        pass


Memory = MemoryStore
"""Another name for `MemoryStore`."""
