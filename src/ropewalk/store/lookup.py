"""`LogReader`: reads the records of a log, and finds nodes in them.

There is no index of nodes. A commit is found by its hash, in the index of the engine; its hints
say where the nodes are that it links to, and theirs where the next ones are. These places are
cached for one epoch of the space: a collection raises the epoch, which invalidates them.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Unpack

from ropewalk.errors import Corrupt, DamagedObject, FormatError, MissingObjects
from ropewalk.store.compression import expand
from ropewalk.store.contract import Store, StoreOptions
from ropewalk.store.forking import freed_after_fork
from ropewalk.store.model import Operation, Stored, check_ids
from ropewalk.store.names import check_space
from ropewalk.store.pace import pause
from ropewalk.store.record import (
    BY_HASH,
    DICTIONARY,
    GROUP,
    Node,
    Place,
    Record,
    Row,
    decode_header,
    place_of,
    position_of,
    sequence_of,
    unseal,
)
from ropewalk.store.segment import Packed, Segment
from ropewalk.tree.objects import Kind, Object, ObjectId, object_id

if TYPE_CHECKING:
    from ropewalk.store.log import Places, SpaceCache
    from ropewalk.tree.objects import Reader

_RECORDS: Final = 16 << 20
"""The size of the cache of decoded records and segments, in bytes, for all spaces."""
_HEADS: Final = 16
STEPS: Final = 1 << 14
"""For how many nodes the commit that links to them is cached."""


class LogReader(Store):
    """The reading half of `LogStore`."""

    def __init__(self, **options: Unpack[StoreOptions]) -> None:
        super().__init__(**options)
        self._spaces_known: OrderedDict[str, SpaceCache] = OrderedDict()
        self._opened: OrderedDict[tuple[str, int], tuple[Record | Segment, int]] = OrderedDict()
        self._held = self._forgotten = 0
        self._steps: dict[tuple[str, ObjectId], ObjectId] = {}
        """The commit that links to a root: where to find its place after a cache miss."""
        self._cache_lock = freed_after_fork(threading.Lock())

    # What an engine supplies.

    @abstractmethod
    def _epoch(self, space: str) -> int:
        """The epoch of a space; 1 before the first commit."""

    @abstractmethod
    def _rows(self, space: str, first: int, last: int) -> list[Row]:
        """The rows of the tail with these numbers, ascending."""

    @abstractmethod
    def _load(self, space: str, sequence: int) -> list[Row] | Packed | None:
        """The group of a record in the tail up to it, or the segment that holds it.

        Both are looked for at one moment.
        """

    @abstractmethod
    def _locate(self, space: str, ids: Sequence[ObjectId]) -> dict[ObjectId, int]:
        """The records in segments that bring commits with these ids. Others may be among them."""

    @abstractmethod
    def _span(self, space: str) -> tuple[int, int]:
        """The last packed record of a space, and the last one."""

    @abstractmethod
    def _read_shared(self, ids: Sequence[ObjectId]) -> dict[ObjectId, bytes]:
        """The frames of shared objects, each with its kind in front; without absent ones."""

    @abstractmethod
    def _present_shared(self, ids: Sequence[ObjectId]) -> set[ObjectId]:
        """Those of the ids that are shared objects."""

    @abstractmethod
    def _leading_shared(self, ids: Iterable[ObjectId]) -> set[ObjectId]:
        """Those of some shared objects that lead to others."""

    @abstractmethod
    def _scan_shared(self) -> Iterator[Stored]:
        """Every shared object."""

    @abstractmethod
    def _space(self, space: str) -> SpaceCache:
        """What is remembered of a space."""

    # Reading.

    def read(self, ids: Iterable[ObjectId]) -> list[Object]:
        """The shared objects with these ids, in this order, each verified against its hash.

        What is not shared is found by the `reader` of its space. Raises `MissingObjects` with
        all that are absent, `DamagedObject` for the first that is not what its name says.
        """
        self._check_open()
        asked = check_ids(ids, "what is read")
        found = self._shared_objects(asked)
        missing = [id for id in dict.fromkeys(asked) if id not in found]
        if missing:
            raise MissingObjects(missing)
        return [found[id] for id in asked]

    def reader(self, space: str) -> Reader:
        """A function that reads objects of a space, and shared ones, as `read` does."""
        self._check_open()
        check_space(space)
        return SpaceReader(self, space)

    def missing(self, ids: Iterable[ObjectId], space: str | None = None) -> list[ObjectId]:
        """Those of the ids that a commit to a space could not name in its needs.

        Without a space: those that are no shared objects of the store.
        """
        self._check_open()
        asked = list(dict.fromkeys(check_ids(ids, "ids")))
        if space is None:
            found = self._present_shared(asked)
        else:
            check_space(space)
            found = set(self._find_places(space, asked))
        return [id for id in asked if id not in found]

    def scan(self) -> Iterator[Stored]:
        """Every object, in no order; what is written meanwhile may be left out."""
        self._check_open()
        return self._scan()

    def _scan(self) -> Iterator[Stored]:
        for space in self.spaces():
            seen: set[ObjectId] = set()
            for record in self.records(space):
                scale = record.scale
                for piece, node in zip(record.pieces, record.nodes(), strict=True):
                    if piece is not None and node is not None and node.id not in seen:
                        seen.add(node.id)
                        stored = piece.stored(scale)
                        yield Stored(node.id, node.kind, len(node.payload), stored)
        yield from self._scan_shared()

    def records(self, space: str) -> Iterator[Record]:
        """All records of a space, in order; raises `Corrupt` for a gap."""
        sequence, last = 1, self._span(space)[1]
        while sequence <= last:
            # The rows of a group are decoded together: they are each other's dictionaries.
            end = min((sequence - 1) // GROUP * GROUP + GROUP, last)
            found = self._stretch(space, end, keep=False)
            if found[0].sequence > sequence:  # A segment ends inside the group.
                found = self._stretch(space, sequence, keep=False)
            for record in found:
                if record.sequence >= sequence:
                    yield record
            sequence = found[-1].sequence + 1

    def _operations(self, space: str, after: int, limit: int) -> list[Operation]:
        last = min(self._span(space)[1], after + limit)
        found: list[Operation] = []
        sequence = after + 1
        while sequence <= last:
            for record in self._stretch(space, sequence):
                if sequence <= record.sequence <= last:
                    found.append(self._operation(space, record))
                    sequence = record.sequence + 1
        return found

    def _operation(self, space: str, record: Record) -> Operation:
        try:
            return decode_header(space, record)
        except FormatError as error:
            raise Corrupt(
                f"record {record.sequence} of {space!r} is damaged: {error}. Restore the store "
                "from a copy; other spaces are not affected."
            ) from error

    def _record(self, space: str, sequence: int) -> Record:
        """One record; raises `Corrupt` if it is damaged or not there."""
        found = self._cached(space, sequence)
        if found is not None:
            return found
        return next(one for one in self._stretch(space, sequence) if one.sequence == sequence)

    def _stretch(self, space: str, sequence: int, *, keep: bool = True) -> list[Record]:
        """A record with those that are loaded with it, ascending; raises `Corrupt`.

        A scan of the whole log passes `keep=False`, so that it does not flush the cache.
        """
        moment = self._forgotten if keep else None
        return self._read_stretch(space, sequence, self._load(space, sequence), moment)

    def _read_stretch(
        self,
        space: str,
        sequence: int,
        loaded: list[Row] | Packed | None,
        moment: int | None = None,
    ) -> list[Record]:
        """Decode what was loaded; cached if nothing was invalidated since `moment`."""
        if isinstance(loaded, Packed):
            with self._cache_lock:
                known = self._opened.get((space, -loaded.first))
            if moment is not None:
                self._space(space).segment = -loaded.first
            segment = None if known is None else known[0]
            if not isinstance(segment, Segment) or not segment.is_of(loaded):
                known, segment = None, Segment(space, loaded.head, loaded.data)
            if not segment.first <= sequence <= segment.last or segment.last != loaded.last:
                raise segment.damaged("it does not hold what its row says")
            if known is not None:
                return segment.records()
            if moment is None:
                return segment.released()
            self._keep(space, -segment.first, segment, 4 * len(loaded.data), moment)
            return segment.records()
        if not loaded or loaded[-1].sequence != sequence:
            raise Corrupt(
                f"record {sequence} of {space!r} is gone: rows of its log are lost. Restore the "
                "store from a copy; other spaces are not affected."
            )
        return self._decode(space, loaded, moment)

    def _decode(self, space: str, rows: Sequence[Row], moment: int | None = None) -> list[Record]:
        """Decode rows of one group; cached if nothing was invalidated since `moment`."""
        bodies: dict[int, bytes] = {}
        records: list[Record] = []
        for sequence, dictionary, frame in rows:
            try:
                known = None if dictionary is None else bodies.get(dictionary)
                body = bodies[sequence] = expand(
                    unseal(space, sequence, frame), None if known is None else known[-DICTIONARY:]
                )
                record = Record.decode(sequence, body, len(frame))
            except FormatError as error:
                raise Corrupt(
                    f"record {sequence} of {space!r} is damaged: {error}. Restore the store from "
                    "a copy; other spaces are not affected."
                ) from error
            if moment is not None:
                self._keep(space, sequence, record, len(body), moment)
            records.append(record)
            pause()
        return records

    # The cache of records and segments.

    def _keep(self, space: str, number: int, one: Record | Segment, size: int, moment: int) -> None:
        """Cache a record or segment, unless a space was invalidated since it was loaded."""
        size += 256
        with self._cache_lock:
            if moment != self._forgotten:
                return
            before = self._opened.pop((space, number), None)
            self._held += size - (0 if before is None else before[1])
            self._opened[space, number] = one, size
            while self._held > _RECORDS and len(self._opened) > 1:
                self._held -= self._opened.popitem(last=False)[1][1]

    def _cached(self, space: str, sequence: int) -> Record | None:
        """A record from the cache, by itself or in the segment that was read last."""
        cache = self._spaces_known.get(space)
        with self._cache_lock:
            key = space, sequence
            if key not in self._opened and cache is not None:
                key = space, cache.segment
            found = self._opened.get(key)
            if found is None:
                return None
            self._opened.move_to_end(key)
        one = found[0]
        if isinstance(one, Record):
            return one
        return one.record(sequence) if one.first <= sequence <= one.last else None

    def _trim_steps(self) -> None:
        """Evict the older half of `_steps`."""
        for oldest in list(self._steps)[: STEPS // 2]:
            self._steps.pop(oldest, None)

    # Finding nodes.

    def _find_places(self, space: str, ids: Sequence[ObjectId]) -> dict[ObjectId, Place]:
        """Where nodes of a space are, `BY_HASH` for shared objects; without absent ones."""
        cache = self._space(space)
        found = cache.places.find(ids)
        if len(found) == len(ids):
            return found
        absent = [id for id in ids if id not in found]
        if absent:
            shared = self._present_shared(absent)
            found.update(dict.fromkeys(shared, BY_HASH))
            absent = [id for id in absent if id not in shared]
        if absent and self._span(space)[1]:
            found.update(self._search(space, absent))
        cache.places.trim()
        cache.places.update(found)
        return found

    def _search(self, space: str, ids: Sequence[ObjectId]) -> dict[ObjectId, Place]:
        """Find nodes whose places are not cached, from the cheapest way to a full scan.

        First by the engine's index of commits, and by the commit that is known to link to a
        root; then in the tail, in the values that refs lead to, and in all other records.
        """
        steps = {id: step for id in ids if (step := self._steps.get((space, id))) is not None}
        wanted = {*ids, *steps.values()}
        found: dict[ObjectId, Place] = {}
        for sequence in set(self._locate(space, list(wanted)).values()):
            _match(self._record(space, sequence), wanted, found)
        self._follow_steps(space, steps, wanted, found)
        if wanted.isdisjoint(ids):
            return found
        packed, last = self._span(space)
        for record in self._newest_first(space, packed, last):
            _match(record, wanted, found)
            if wanted.isdisjoint(ids):
                return found
        self._follow_steps(space, steps, wanted, found)
        wanted.intersection_update(ids)
        if not wanted:
            return found
        self._search_versions(space, wanted, found)
        if not wanted:
            return found
        for record in self._newest_first(space, 0, packed):
            _match(record, wanted, found)
            if not wanted:
                break
        return found

    def _follow_steps(
        self,
        space: str,
        steps: Mapping[ObjectId, ObjectId],
        wanted: set[ObjectId],
        found: dict[ObjectId, Place],
    ) -> None:
        """Find roots by the hints of the commits that were found."""
        for id in wanted.intersection(steps):
            if (at := found.get(steps[id])) is None:
                continue
            step = self._node(space, steps[id], at)
            place = None if step is None else step.places(sequence_of(at)).get(id)
            # The hint may lead to a node that was collected, and was stored again elsewhere.
            if place is not None and (place == BY_HASH or self._node(space, id, place)):
                wanted.discard(id)
                found[id] = place

    def _search_versions(
        self, space: str, wanted: set[ObjectId], found: dict[ObjectId, Place]
    ) -> None:
        """Look for nodes in the values that refs lead to, from the top down."""
        heads = [ref.target for ref in self._view(space, "").refs][:_HEADS]
        located = self._locate(space, heads)
        pending: list[tuple[ObjectId, Place]] = []
        for id in heads:
            if id in located:
                for at, node in enumerate(self._record(space, located[id]).nodes()):
                    if node is not None and node.id == id:
                        pending.append((id, place_of(located[id], at)))
        seen: set[Place] = set()
        while pending and wanted:
            id, place = pending.pop()
            node = self._node(space, id, place)
            if node is None or not node.hints:
                continue
            below = node.places(sequence_of(place))
            if node.kind == Kind.COMMIT:
                below = dict([*below.items()][:1])  # Its value, not where it came from.
            for id, place in below.items():
                if place != BY_HASH and place not in seen:
                    seen.add(place)
                    pending.append((id, place))
                    if id in wanted:
                        wanted.discard(id)
                        found[id] = place

    def _newest_first(self, space: str, after: int, last: int) -> Iterator[Record]:
        while last > after:
            for record in reversed(self._stretch(space, last)):
                if record.sequence <= after:
                    return
                if record.sequence <= last:
                    last = record.sequence - 1
                    yield record

    def _records_after(self, space: str, after: int, last: int) -> list[Record]:
        """The records behind a number, up to another, the last one first."""
        return list(self._newest_first(space, after, last))

    def _node(self, space: str, id: ObjectId, place: Place) -> Node | None:
        record = self._record(space, sequence_of(place))
        try:
            node = record.node(position_of(place))
        except FormatError as error:
            raise DamagedObject(id, str(error)) from error
        if node is not None and node.id != id:
            raise DamagedObject(id, f"record {record.sequence} holds something else in its place")
        return node

    def _stored_shared(self, ids: Sequence[ObjectId]) -> set[ObjectId]:
        """Those of the ids that are shared objects, including ones marked for deletion.

        A collection spares a marked object if a space names it.
        """
        there = self._present_shared(ids)
        if absent := [id for id in ids if id not in there]:
            there = there.union(self._read_shared(absent))
        return there

    def _shared_objects(self, ids: Sequence[ObjectId]) -> dict[ObjectId, Object]:
        frames = self._read_shared(list(dict.fromkeys(ids)))
        return {id: shared_object(id, frame) for id, frame in frames.items()}


class SpaceReader:
    """Reads objects of one space, and shared ones, each verified against its hash."""

    __slots__ = ("_space", "_store")

    def __init__(self, store: LogReader, space: str) -> None:
        self._store, self._space = store, space

    def __call__(self, ids: Sequence[ObjectId]) -> list[Object]:
        """The objects with these ids, in this order; raises `MissingObjects`, `DamagedObject`."""
        store, space = self._store, self._space
        store._check_open()
        places = store._space(space).places
        known = places.find(ids)
        found: dict[ObjectId, Object] = {}
        unknown: list[ObjectId] = []
        by_hash: list[ObjectId] = []
        for id in ids:
            place = known.get(id)
            if place is None:
                unknown.append(id)
            elif place == BY_HASH:
                by_hash.append(id)
            elif id not in found:
                self._take(id, place, found, places)
        if unknown:
            check_ids(unknown, "what is read")
            located = store._find_places(space, unknown)
            for id in unknown:
                place = located.get(id, BY_HASH)  # It may be marked for deletion, but readable.
                if place == BY_HASH:
                    by_hash.append(id)
                else:
                    self._take(id, place, found, places)
        if by_hash:
            found.update(store._shared_objects(by_hash))
        missing = [id for id in dict.fromkeys(ids) if id not in found]
        if missing:
            raise MissingObjects(missing)
        return [found[id] for id in ids]

    def _take(
        self, id: ObjectId, place: Place, found: dict[ObjectId, Object], places: Places
    ) -> None:
        store, space = self._store, self._space
        node = store._node(space, id, place)
        if node is None:
            return
        found[id] = node.object()
        if node.hints:
            try:
                places.trim()
                below = node.places(sequence_of(place))
                places.update(below)
                if node.kind is Kind.COMMIT:
                    store._steps.update(dict.fromkeys([(space, one) for one in below], id))
                    if len(store._steps) > STEPS:
                        store._trim_steps()
            except (FormatError, ValueError) as error:
                raise DamagedObject(id, f"what it leads to cannot be told: {error}") from error


def shared_object(id: ObjectId, frame: bytes) -> Object:
    """The shared object in a frame, which has its kind in front; raises `DamagedObject`."""
    try:
        kind, payload = Kind(frame[0]), expand(frame[1:])
    except (FormatError, ValueError, IndexError) as error:
        raise DamagedObject(id, str(error)) from error
    if object_id(kind, payload) != id:
        raise DamagedObject(id, "its bytes do not match its hash")
    return Object(id, kind, payload)


def _match(record: Record, wanted: set[ObjectId], found: dict[ObjectId, Place]) -> None:
    """Move the wanted nodes that a record has from `wanted` to `found`."""
    for at, node in enumerate(record.nodes()):
        if node is not None and node.id in wanted:
            wanted.discard(node.id)
            found[node.id] = place_of(record.sequence, at)
