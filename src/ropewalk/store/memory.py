"""A store in memory: for tests, for short-lived work, and to show what an engine is.

Its log is packed only by a collection: a record needs nothing to be found but its number. A node
needs no search either, for nothing that is learned of places is ever forgotten.
"""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar, Final, NamedTuple, Unpack

from ropewalk.errors import MissingObjects
from ropewalk.store.collection import Sweep, names_of, touches, unreached
from ropewalk.store.compression import read_varint
from ropewalk.store.contract import StoreOptions
from ropewalk.store.forking import whole_after_fork
from ropewalk.store.log import (
    LogStore,
    Places,
    SpaceCache,
    expect_allowed,
    shared_frame,
)
from ropewalk.store.model import (
    KEY,
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
from ropewalk.store.quota import expect_room
from ropewalk.store.record import (
    GROUP,
    Append,
    Place,
    Record,
    Row,
    place_of,
    same_group,
    seal,
)
from ropewalk.store.segment import Packed
from ropewalk.tree.nodes import links
from ropewalk.tree.objects import Kind, ObjectId

_LARGE: Final = 1024
"""A body of more bytes leans on the first such body of its group."""


class Sizes(NamedTuple):
    """How much a store holds."""

    objects: int
    """Nodes and shared objects."""
    stored_bytes: int
    """Bytes of the records, segments and shared objects that they are in."""
    written_bytes: int
    """Bytes of all that was ever written, gone or not."""


class _Index(Places):
    """The places of all nodes of a space."""

    def trim(self) -> None:
        """Nothing is forgotten."""


class Space(SpaceCache):
    """What belongs to one space, and what is known of it."""

    def __init__(self) -> None:
        super().__init__(epoch=1)
        self.places = _Index()
        self.refs: dict[str, Ref] = {}
        self.operations: list[Operation] = []
        self.keys: dict[bytes, list[int]] = {}
        self.segments: list[Packed] = []
        self.tail: list[Row] = []
        """The records after the segments."""
        self.leases: dict[str, LeaseRecord] = {}
        self.tokens = 0
        self.wakes: list[Callable[[], None]] = []

    def append(self, batch: Append, dictionary: int | None, frame: bytes) -> Operation:
        """Append a record, and move refs."""
        sequence = len(self.operations) + 1
        for name, _, target in batch.moves:
            if target is None:
                self.refs.pop(name, None)
            else:
                self.refs[name] = Ref(name, target, sequence)
        key = batch.metadata.get(KEY)
        if isinstance(key, bytes):
            self.keys.setdefault(key, []).append(sequence)
        operation = Operation(
            batch.space, sequence, batch.moves, batch.write_id, batch.time, self.epoch,
            batch.metadata,
        )  # fmt: skip
        self.tail.append(Row(sequence, dictionary, seal(batch.space, sequence, frame)))
        self.operations.append(operation)
        return operation

    def can_lean_on(self, sequence: int) -> bool:
        """Whether the next record can lean on one: that is of its group, and not packed."""
        packed, last = len(self.operations) - len(self.tail), len(self.operations)
        return packed < sequence <= last and same_group(last + 1, sequence)

    def find_segment(self, sequence: int) -> Packed | None:
        """The segment that holds a record."""
        at = bisect_left(self.segments, sequence, key=lambda one: one.last)
        return None if at == len(self.segments) else self.segments[at]


class _Data:
    """What several `MemoryStore`s on the same memory share, under one lock."""

    def __init__(self) -> None:
        self.lock = whole_after_fork(threading.RLock())
        self.header = Header(os.urandom(16))
        self.spaces: dict[str, Space] = {}
        self.shared: dict[ObjectId, bytes] = {}
        """The frames of shared objects."""
        self.leading: set[ObjectId] = set()
        """Those of them that lead to others."""
        self.stored_bytes = self.written_bytes = 0

    def space(self, name: str) -> Space:
        """A space, made if it is not there."""
        return self.spaces.setdefault(name, Space())

    def remove(self, ids: Iterable[ObjectId]) -> None:
        """Take shared objects out."""
        for id in ids:
            self.stored_bytes -= len(self.shared.pop(id, b""))
            self.leading.discard(id)


class MemoryStore(LogStore):
    """A store that ends with its process.

    `another()` gives a second store object on the same memory, with its own clock and
    caches, as a second process would have on a shared engine.
    """

    capabilities = Capabilities(persists=False, shared=False, wakes=True)
    poll_seconds: ClassVar[float | None] = None

    def __init__(self, **options: Unpack[StoreOptions]) -> None:
        options.setdefault("backend_id", "memory")
        super().__init__(**options)
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
            objects = len(data.shared) + sum(
                sum(1 for place in space.places.values() if place) for space in data.spaces.values()
            )
            return Sizes(objects, data.stored_bytes, data.written_bytes)

    # Committing.

    def _commit(self, batch: Append) -> Operation:
        data, shared = self._data, batch.shared
        large = len(batch.body) > _LARGE
        dictionary, known = self._space(batch.space).dictionary(batch) if large else (None, None)
        frame = batch.frame(known)
        frames = {id: shared_frame(one) for id, one in shared.items() if id not in data.shared}
        with data.lock:
            space = data.space(batch.space)
            if not batch.fresh and (recorded := self._recorded(space, batch)) is not None:
                batch.recorded = recorded
                return recorded
            _expect_allowed(data, space, batch)
            absent = [one for id, one in shared.items() if id not in data.shared]
            for one in absent:
                if one.id not in frames:  # Collected since we looked.
                    frames[one.id] = shared_frame(one)
            if dictionary is not None and not space.can_lean_on(dictionary):
                dictionary, frame = None, batch.frame(None)
            size = len(frame) + sum([len(frames[one.id]) for one in absent])
            if self._size_limit is not None and (batch.objects or absent):
                expect_room(data.stored_bytes, size, self._size_limit)
            for one in absent:
                data.shared[one.id] = frames[one.id]
                if links(one):
                    data.leading.add(one.id)
            operation = space.append(batch, dictionary, frame)
            data.stored_bytes += size
            data.written_bytes += size
            first = space.tip
            self._landed(batch, operation.sequence)
            if dictionary is not None or not large:
                space.tip = first
            wakes = tuple(space.wakes)
        for wake in wakes:
            wake()
        return operation

    def _recorded(self, space: Space, batch: Append) -> Operation | None:
        """The operation that has the write id of a commit, among the latest."""
        for one in space.operations[-REMEMBERED_WRITES:]:
            if one.write_id == batch.write_id:
                return self._find_write(batch, [self._record(batch.space, one.sequence)])
        return None

    # What is known of a space is the space itself.

    def _space(self, space: str) -> Space:
        return self._data.spaces.get(space) or Space()

    def _epoch(self, space: str) -> int:
        return self._space(space).epoch

    def _locate(self, space: str, ids: Sequence[ObjectId]) -> dict[ObjectId, int]:
        return {}

    def _search(self, space: str, ids: Sequence[ObjectId]) -> dict[ObjectId, Place]:
        return {}

    # The log.

    def _span(self, space: str) -> tuple[int, int]:
        with self._data.lock:
            found = self._space(space)
            last = len(found.operations)
            return last - len(found.tail), last

    def _rows(self, space: str, first: int, last: int) -> list[Row]:
        with self._data.lock:
            found = self._space(space)
            packed = len(found.operations) - len(found.tail)
            return found.tail[max(first - packed - 1, 0) : max(last - packed, 0)]

    def _segment(self, space: str, sequence: int) -> Packed | None:
        with self._data.lock:
            return self._space(space).find_segment(sequence)

    def _load(self, space: str, sequence: int) -> list[Row] | Packed | None:
        with self._data.lock:
            first = (sequence - 1) // GROUP * GROUP + 1
            return self._rows(space, first, sequence) or self._segment(space, sequence)

    def _record(self, space: str, sequence: int) -> Record:
        found = self._cached(space, sequence)
        if found is not None:
            return found
        with self._data.lock:
            moment, rows = self._forgotten, self._rows(space, sequence, sequence)
            if rows and (leans := rows[0].dictionary) is not None:
                rows = self._rows(space, leans, leans) + rows
        return self._decode(space, rows, moment)[-1] if rows else super()._record(space, sequence)

    def _operations(self, space: str, after: int, limit: int) -> list[Operation]:
        with self._data.lock:
            return self._space(space).operations[after : after + limit]

    def _find(self, space: str, key: bytes) -> list[int]:
        with self._data.lock:
            return list(self._space(space).keys.get(key, ()))

    # Spaces.

    def _ref(self, space: str, name: str) -> Ref | None:
        with self._data.lock:
            return self._space(space).refs.get(name)

    def _view(self, space: str, prefix: str) -> View:
        with self._data.lock:
            found = self._space(space)
            refs = sorted(ref for name, ref in found.refs.items() if name.startswith(prefix))
            return View(len(found.operations), found.epoch, tuple(refs))

    def _spaces(self, prefix: str) -> list[str]:
        with self._data.lock:
            spaces = self._data.spaces.items()
            return sorted(
                name for name, space in spaces if space.operations and name.startswith(prefix)
            )

    def _subscribe(self, space: str, wake: Callable[[], None]) -> Callable[[], None]:
        with self._data.lock:
            wakes = self._data.space(space).wakes
            wakes.append(wake)

        def stop() -> None:
            with self._data.lock:
                wakes.remove(wake)

        return stop

    # Leases.

    def _lease(self, space: str, name: str) -> LeaseRecord | None:
        with self._data.lock:
            return self._space(space).leases.get(name)

    def _leases(self, space: str, prefix: str) -> list[LeaseRecord]:
        with self._data.lock:
            leases = self._space(space).leases.items()
            return sorted(one for name, one in leases if name.startswith(prefix))

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

    # Shared objects.

    def _read_shared(self, ids: Sequence[ObjectId]) -> dict[ObjectId, bytes]:
        with self._data.lock:
            shared = self._data.shared
            return {id: shared[id] for id in ids if id in shared}

    def _present_shared(self, ids: Sequence[ObjectId]) -> set[ObjectId]:
        with self._data.lock:
            return {id for id in ids if id in self._data.shared}

    def _leading_shared(self, ids: Iterable[ObjectId]) -> set[ObjectId]:
        with self._data.lock:
            return self._data.leading.intersection(ids)

    def _scan_shared(self) -> Iterator[Stored]:
        with self._data.lock:
            frames = list(self._data.shared.items())
        for id, frame in frames:
            length, _ = read_varint(frame, 2)
            yield Stored(id, Kind(frame[0]), length, len(frame))

    def _count_shared(self) -> tuple[int, int]:
        with self._data.lock:
            shared = self._data.shared
            return len(shared), sum(map(len, shared.values()))

    def _collect_shared(self, named: set[ObjectId] | None) -> tuple[int, int]:
        data = self._data
        with data.lock:
            there = {id: len(frame) for id, frame in data.shared.items()}
            spaces = data.spaces.values()
            known = set[bytes]().union(*[one.named for one in spaces]) if named is None else named
            free = unreached(self, there, known)
            if named is None:
                data.remove(free)
        return len(free), sum(free.values())

    def _discard(self, ids: Sequence[ObjectId]) -> None:
        with self._data.lock:
            self._data.remove(ids)

    # Segments and collection.

    def _settle(
        self, space: str, packed: Packed, commits: Sequence[tuple[ObjectId, Place]]
    ) -> bool:
        with self._data.lock:
            found = self._space(space)
            count = packed.last - packed.first + 1
            if self._span(space)[0] != packed.first - 1 or len(found.tail) < count:
                return False
            # Records that came since may lean on one of them.
            leans = [row.dictionary for row in found.tail[count : count + GROUP] if row.dictionary]
            if leans and min(leans) <= packed.last:
                return False
            self._data.stored_bytes += len(packed.head) + len(packed.data)
            self._data.stored_bytes -= sum([len(row.frame) for row in found.tail[:count]])
            del found.tail[:count]
            found.segments.append(packed)
            return True

    def _replace(self, space: str, found: Sweep) -> bool:
        data = self._data
        with data.lock:
            known = self._space(space)
            since = self._records_after(space, found.last, len(known.operations))
            if known.epoch != found.epoch:
                return False
            if touches(since, found.dead, {id for id, _ in found.gone}):
                return False
            for one in found.replaced:
                at = bisect_left(known.segments, one.last, key=lambda there: there.last)
                before = known.segments[at]
                assert (before.first, before.last) == (one.first, one.last)
                known.segments[at] = one
                data.stored_bytes += len(one.head) + len(one.data)
                data.stored_bytes -= len(before.head) + len(before.data)
            known.epoch += 1
            known.named = found.named | names_of(since)
            if found.gone:
                known.places = _Index()
                for record in self.records(space):
                    for at, node in enumerate(record.nodes()):
                        if node is not None:
                            known.places[node.id] = place_of(record.sequence, at)
            return True

    def _names_more(self, space: str, named: set[ObjectId]) -> bool:
        with self._data.lock:
            return not self._space(space).named <= named

    # Life.

    def _disk_bytes(self) -> int:
        return self._data.stored_bytes

    def _close(self) -> None:
        pass


def _expect_allowed(data: _Data, space: Space, batch: Append) -> None:
    """Raise if a commit cannot be appended as things stand."""
    expect_allowed(batch, space.leases, space.refs, space.epoch)
    gone = [id for id in batch.names if id not in data.shared and id not in batch.shared]
    if gone:
        raise MissingObjects(sorted(gone))
