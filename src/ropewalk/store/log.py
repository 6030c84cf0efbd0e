"""Stores whose spaces are logs of records: what all such engines share.

An engine appends a record in one step, and finds the row of a record or the segment that it was
packed into. Everything else is here: what becomes a record and what is shared, how nodes are
found by their places, and what a process remembers of a space.

A node needs no index. A reader learns the places of nodes from the hints of those that lead to
them, beginning with a commit, which is found by its hash. What it learned holds for one epoch of
the space: a collection raises it, and then everything is looked up anew.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, Unpack
from zlib import crc32

from ropewalk.errors import (
    Corrupt,
    DamagedObject,
    FormatError,
    MissingObjects,
    RefMoved,
    RopewalkError,
    StoreFull,
    WriteIdReused,
)
from ropewalk.store.batch import Batch
from ropewalk.store.compression import SMALL_BODY, compress, expand
from ropewalk.store.contract import Store, StoreOptions
from ropewalk.store.forking import freed_after_fork
from ropewalk.store.model import Operation, Ref, Stored, check_ids
from ropewalk.store.names import check_space
from ropewalk.store.pace import pause
from ropewalk.store.packer import FEWEST_AT_CLOSE, TAIL_BYTES, TAIL_RECORDS, Packer, pack_all
from ropewalk.store.record import (
    BY_HASH,
    GROUP,
    POSITION_BITS,
    Node,
    Place,
    Record,
    decode_header,
    encode_body,
    encode_header,
    place_of,
    position_of,
    sequence_of,
    write_id_of,
)
from ropewalk.store.segment import Packed, Segment
from ropewalk.tree.nodes import is_text, links
from ropewalk.tree.objects import Kind, Object, ObjectId, object_id

if TYPE_CHECKING:
    from ropewalk.store.collection import Collected, Progress, Sweep
    from ropewalk.store.statistics import Stats
    from ropewalk.store.verification import Report
    from ropewalk.tree.objects import Reader

LARGE_COMMIT: Final = 256 * 1024
"""What a commit of more bytes brings is shared, but for what leads to other nodes."""
LARGE_TEXT: Final = 32 * 1024
"""So many bytes of chunks are those of a large text, and shared."""
DICTIONARY: Final = 32 * 1024
"""So many bytes of an earlier record are the dictionary of a later one."""

_PLACES: Final = 1 << 14
_STEPS: Final = 1 << 14
_RECORDS: Final = 16 << 20
"""So many bytes of records and segments are kept of all spaces."""
_SPACES: Final = 1024
_HEADS: Final = 16
_CRC: Final = 4


class Row(NamedTuple):
    """A record as it stands in the tail of a log."""

    sequence: int
    dictionary: int | None
    """The record whose body is the dictionary of this one."""
    frame: bytes
    """With a crc32 in front."""


def seal(space: str, sequence: int, frame: bytes) -> bytes:
    """A frame with a crc32 in front, which also tells whose record it is."""
    return crc32(frame, crc32(f"{space} {sequence}".encode())).to_bytes(_CRC, "little") + frame


class Moved(Exception):
    """The space is at another epoch, so what was known of it is looked up anew; nothing was
    written."""

    def __init__(self, epoch: int) -> None:
        super().__init__()
        self.epoch = epoch


@dataclass(slots=True)
class Append(Batch):
    """One record to be appended, and the objects that are shared with it."""

    objects: Sequence[Object] = ()
    """Those of the record."""
    shared: Mapping[ObjectId, Object] = field(default_factory=dict)
    names: frozenset[ObjectId] = frozenset()
    """Shared objects that the record itself leads to, as far as the space is not known to."""
    missing: tuple[ObjectId, ...] = ()
    """What it needs and nobody has."""
    known_epoch: int = 1
    """The epoch of the space at which it was made."""
    body: bytes = b""
    parent: int | None = None
    """The record of the commit that the step follows."""
    recorded: Operation | None = None
    """What was done before, if this is a repeated write."""

    leans: bool = False
    """Whether its frame leans on a dictionary."""

    def frame(self, dictionary: bytes | None) -> bytes:
        """The body as it is stored from now on."""
        self.leans = dictionary is not None
        return compress(self.body, dictionary)


class Tip(NamedTuple):
    """What the next record can lean on. One value: several threads may change it."""

    last: int
    """The last record that this process appended."""
    leans_on: int
    body: bytes
    """The end of the body of that one, which is the dictionary of the next."""

    def dictionary(self) -> tuple[int | None, bytes | None]:
        """The record to lean on and its body, if it is of the group of the next."""
        return (self.leans_on, self.body) if self.body and self.last % GROUP else (None, None)

    def after(self, sequence: int, append: Append) -> Tip:
        """What is known once another record was appended.

        Small records of a group all lean on the first: what compresses is made once for them.
        """
        body = append.body
        follows = append.leans and sequence - 1 == self.last and self.last % GROUP
        if follows and len(body) <= len(self.body) * 5 // 4 <= SMALL_BODY:
            return Tip(sequence, self.leans_on, self.body)
        return Tip(sequence, sequence, body[-DICTIONARY:])


class SpaceCache:
    """What a process remembers of one space, at one epoch of it."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.places = Places()
        """Of nodes; `BY_HASH` for objects that are shared."""
        self.named: set[ObjectId] = set()
        """Shared objects that the space is known to name."""
        self.tip = Tip(0, 0, b"")
        self.packed = 0
        """Up to where the log is packed, as far as is known."""
        self.looked = 0
        self.tail_bytes = 0
        self.segment = 0
        """The key of the segment that was read last."""

    def dictionary(self) -> tuple[int | None, bytes | None]:
        """What the next record can lean on, if it is of the same group."""
        return self.tip.dictionary()


class Places(dict["ObjectId", "Place"]):
    """Places by id, of which those that were not asked for lately are forgotten."""

    def __init__(self) -> None:
        super().__init__()
        self._older: dict[ObjectId, Place] = {}

    def __missing__(self, id: ObjectId) -> Place:
        place = self._older[id]
        self[id] = place
        return place

    def find(self, ids: Collection[ObjectId]) -> dict[ObjectId, Place]:
        """The places of those of the ids that are remembered."""
        try:
            return dict(zip(ids, map(self.__getitem__, ids), strict=True))
        except KeyError:
            pass
        found: dict[ObjectId, Place] = {}
        for id in ids:
            try:
                found[id] = self[id]
            except KeyError:
                continue
        return found

    def trim(self) -> None:
        """Forget what was not asked for since the last time that there was too much."""
        if len(self) > _PLACES:
            self._older = dict(self)
            self.clear()


class LogStore(Store):
    """A store whose spaces are logs of records."""

    _tail_bytes: ClassVar[int] = TAIL_BYTES
    """A tail of more bytes is packed."""

    def __init__(self, **options: Unpack[StoreOptions]) -> None:
        super().__init__(**options)
        self._spaces_known: OrderedDict[str, SpaceCache] = OrderedDict()
        self._opened: OrderedDict[tuple[str, int], tuple[Record | Segment, int]] = OrderedDict()
        self._held = self._forgotten = 0
        self._steps: dict[tuple[str, ObjectId], ObjectId] = {}
        """Which commit leads to a value: its hints say where, once the place is forgotten."""
        self._cache_lock = freed_after_fork(threading.Lock())
        self._packer = Packer(self)

    # What an engine supplies.

    @abstractmethod
    def _commit(self, batch: Batch) -> Operation:
        """Append a record, an `Append`, in one atomic step, durably, and wake who subscribed."""

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
    def _settle(
        self, space: str, packed: Packed, commits: Sequence[tuple[ObjectId, Place]]
    ) -> bool:
        """Put a segment in the place of its rows, in one step; False if somebody else did."""

    @abstractmethod
    def _replace(self, space: str, found: Sweep) -> bool:
        """Swap segments for those without what a collection found dead, in one step.

        False, with nothing changed, if a record that came since leads to some of it.
        """

    @abstractmethod
    def _names_more(self, space: str, named: set[ObjectId]) -> bool:
        """Whether the space is noted to lead to other shared objects."""

    @abstractmethod
    def _collect_shared(self, named: set[ObjectId] | None) -> tuple[int, int]:
        """Delete shared objects to which no space leads; how many, and their bytes.

        With `named` nothing is deleted, and these are those to which spaces lead.
        """

    @abstractmethod
    def _discard(self, ids: Sequence[ObjectId]) -> None:
        """Remove shared objects, whoever leads to them."""

    @abstractmethod
    def _count_shared(self) -> tuple[int, int]:
        """How many shared objects there are, and their bytes."""

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

    def carry(self, space: str, ids: Iterable[ObjectId]) -> Iterator[list[Object]]:
        """What commits to another space must bring, so that it can lead to objects of this one.

        In portions, of which each leads only to itself, to earlier ones and to shared objects.
        """
        from ropewalk.store.collection import carried

        self._check_open()
        check_space(space)
        return carried(self, space, check_ids(ids, "what is carried"))

    def discard(self, ids: Iterable[ObjectId]) -> None:
        """Take damaged shared objects out, so that they can be stored anew."""
        self._check_open()
        self._discard(check_ids(ids, "what is taken out"))

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
            # The rows of a group are decoded together, since they lean on each other.
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
        """A record with those that are found with it, ascending; raises `Corrupt`.

        Who goes through a whole log does not `keep` what nobody will ask for again.
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
        """The records of what was loaded; kept if that was after a `moment`."""
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
        """The records of rows, which lean on each other; kept if loaded after a `moment`."""
        bodies: dict[int, bytes] = {}
        records: list[Record] = []
        for sequence, dictionary, frame in rows:
            try:
                if seal(space, sequence, frame[_CRC:]) != frame:
                    raise FormatError("it does not match its checksum")
                known = None if dictionary is None else bodies.get(dictionary)
                body = bodies[sequence] = expand(
                    frame[_CRC:], None if known is None else known[-DICTIONARY:]
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

    # What is remembered.

    def _space(self, space: str) -> SpaceCache:
        """What is remembered of a space."""
        known = self._spaces_known.get(space)
        if known is None:
            epoch = self._epoch(space)
            self._note(space, epoch, 0)
            known = self._spaces_known.get(space) or SpaceCache(epoch)
        return known

    def _note(self, space: str, epoch: int, last: int) -> None:
        """Remember what an engine learned of a space by the way, which spares a look."""
        known = self._spaces_known.get(space)
        if known is None:
            with self._cache_lock:
                known = self._spaces_known.setdefault(space, SpaceCache(epoch))
                while len(self._spaces_known) > _SPACES:
                    self._spaces_known.popitem(last=False)
        if known.epoch == epoch and last > known.tip.last:
            known.tip = Tip(last, last, b"")

    def _forget_space(self, space: str) -> None:
        """Look everything up anew: a collection was at work."""
        with self._cache_lock:
            self._forgotten += 1
            self._spaces_known.pop(space, None)
            for key in [key for key in self._opened if key[0] == space]:
                self._held -= self._opened.pop(key)[1]

    def _keep(self, space: str, number: int, one: Record | Segment, size: int, moment: int) -> None:
        """Remember what was loaded, unless something was forgotten meanwhile."""
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
        """A record that is remembered, or that stands in the segment that was read last."""
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

    def _remember_step(self, space: str, id: ObjectId, below: Iterable[ObjectId | None]) -> None:
        """Remember which commit leads to some nodes."""
        steps = self._steps
        for one in below:
            if one is not None:
                steps[space, one] = id
        if len(steps) > _STEPS:
            for oldest in list(steps)[: _STEPS // 2]:
                steps.pop(oldest, None)

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
        """Look for nodes by their hashes.

        Commits are where the engine says, or in the tail, and a value is where its commit says.
        Other nodes are mostly in the newest versions; else every record is read.
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
        """Take those nodes as found to which commits lead that were found."""
        for id in wanted.intersection(steps):
            if (at := found.get(steps[id])) is None:
                continue
            step = self._node(space, steps[id], at)
            place = None if step is None else step.places(sequence_of(at)).get(id)
            # One that was collected may have been written anew elsewhere.
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
        """Those of the ids that are shared objects, also if a collection has marked them.

        It will see that something leads to them, and leave them.
        """
        there = self._present_shared(ids)
        if absent := [id for id in ids if id not in there]:
            there = there.union(self._read_shared(absent))
        return there

    def _shared_objects(self, ids: Sequence[ObjectId]) -> dict[ObjectId, Object]:
        frames = self._read_shared(list(dict.fromkeys(ids)))
        return {id: shared_object(id, frame) for id, frame in frames.items()}

    # Committing.

    def _land(self, batch: Batch, objects: Sequence[Object]) -> Operation:
        while True:
            append = self._drafted(batch, objects)
            try:
                operation = self._commit(append)
            except Moved:
                self._forget_space(batch.space)
                continue
            except StoreFull:
                if not self._quota.make():
                    raise
                continue
            return operation

    def _drafted(self, batch: Batch, objects: Sequence[Object]) -> Append:
        """A batch as a record."""
        space, step = batch.space, batch.step
        cache = self._space(space)
        private, shared = _divided(objects, batch.share)
        below: list[Sequence[ObjectId]] = []
        for one in private:
            if one.kind == Kind.VALUE and 0xC7 not in one.payload:
                below.append(())
            elif step is not None and one.id == step.id:
                beside = (step.root, *step.parents, step.metadata, step.events)
                below.append([id for id in beside if id is not None])
            else:
                below.append(_below(one))
        mine = {one.id for one in private}
        mine.update(shared)
        older = batch.needs.union(batch.targets, *below) - mine
        places: Mapping[ObjectId, Place] = {}
        missing: tuple[ObjectId, ...] = ()
        names: frozenset[ObjectId] = frozenset()
        if older:
            places = cache.places.find(older)
            if len(places) != len(older):
                places = self._find_places(space, list(older))
                missing = tuple([id for id in older if id not in places])
            if BY_HASH in places.values():
                names = frozenset(
                    [id for id in older if places.get(id, 1) == BY_HASH and id not in cache.named]
                )
            if missing:
                places = {**places, **dict.fromkeys(missing, BY_HASH)}
        if shared:
            places = {**dict.fromkeys(shared, BY_HASH), **{id: places[id] for id in older}}
            led = {id for some in below for id in some}.union([one.target for one in batch.moves])
            names = names.union(shared.keys() & led)
        parent = places.get(step.parents[0]) if step is not None and step.parents else None
        header = encode_header(
            cache.epoch, batch.time, batch.write_id, batch.moves, batch.metadata, private, below
        )
        return Append(
            space,
            batch.needs,
            batch.targets,
            batch.moves,
            batch.fences,
            batch.write_id,
            batch.time,
            batch.metadata,
            batch.epoch,
            step=step,
            fresh=batch.fresh,
            objects=private,
            shared=shared,
            names=names,
            missing=missing,
            known_epoch=cache.epoch,
            body=encode_body(header, private, below, places),
            parent=None if not parent else parent >> POSITION_BITS,
        )

    def _landed(self, append: Append, sequence: int) -> None:
        """Remember a record that was appended, unless a collection was at work since."""
        step = append.step
        if step is not None:
            self._remember_step(append.space, step.id, (step.root, step.metadata, step.events))
        cache = self._space(append.space)
        if cache.epoch != append.known_epoch:
            return
        cache.tip = cache.tip.after(sequence, append)
        base = sequence << POSITION_BITS
        places = cache.places
        if len(places) > _PLACES:
            places.trim()
        for at, one in enumerate(append.objects):
            places[one.id] = base | at
        if append.shared or append.names:
            places.update(dict.fromkeys(append.shared, BY_HASH))
            cache.named.update(append.names)

    def _find_write(self, batch: Append, latest: Iterable[Record]) -> Operation | None:
        """The operation that has the write id of a batch, among the latest of its space.

        Raises `WriteIdReused` if it was another write.
        """
        for record in latest:
            if write_id_of(record.header) == batch.write_id:
                operation = self._operation(batch.space, record)
                nodes = record.nodes()
                # Of what was collected since, nothing is known.
                known = None if None in nodes else {node.id for node in nodes if node is not None}
                if (
                    operation.moves == batch.moves
                    and operation.metadata == batch.metadata
                    and (known is None or known.issuperset([one.id for one in batch.objects]))
                ):
                    return operation
                raise WriteIdReused(
                    f"write id {batch.write_id!r} stands for operation {record.sequence} of "
                    f"{batch.space!r}, which was another write. Take a new write id for a new "
                    "write."
                )
        return None

    # Care.

    def _lost(self, space: str, sequence: int, position: int) -> Corrupt:
        return Corrupt(
            f"node {position} of record {sequence} of {space!r} is gone, although something leads "
            "to it. Restore the store from a copy; other spaces are not affected."
        )

    def _gc(self, recent: int, grace: float, dry_run: bool, progress: Progress | None) -> Collected:
        from ropewalk.store.collection import collect

        return collect(self, recent, grace, dry_run, progress)

    def _check(self, read_data: bool, progress: Progress | None) -> Report:
        from ropewalk.store.verification import check

        return check(self, read_data, progress)

    def _stats(self, recent: int, progress: Progress | None) -> Stats:
        from ropewalk.store.statistics import statistics

        return statistics(self, recent, progress)

    def _free(self, dropped: Sequence[Ref], recent: int, grace: float) -> tuple[int, int]:
        from ropewalk.store.collection import collect_contents

        return collect_contents(self, dropped, recent, grace)

    def _close_packer(self) -> bool:
        """Pack what is left of long tails; whether there was anything."""
        self._packer.close()
        with suppress(RopewalkError):
            return pack_all(self, list(self._spaces_known), FEWEST_AT_CLOSE) > 0
        return False

    def _watch_tail(self, cache: SpaceCache, space: str, sequence: int, size: int) -> None:
        """Have a tail packed that has become long."""
        cache.tail_bytes += size
        if sequence % GROUP == 0 and sequence > cache.looked:
            long = cache.tail_bytes > self._tail_bytes
            if long or sequence - cache.packed >= TAIL_RECORDS:
                cache.packed, last = self._span(space)
                cache.looked = sequence
                if long or last - cache.packed >= TAIL_RECORDS:
                    cache.packed, cache.tail_bytes = sequence, 0
                    self._packer.request(space)


class SpaceReader:
    """Reads objects of one space, and shared ones, each verified against its hash."""

    __slots__ = ("_space", "_store")

    def __init__(self, store: LogStore, space: str) -> None:
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
                place = located.get(id, BY_HASH)  # What a collection has marked is still there.
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
                    store._remember_step(space, id, below)
            except (FormatError, ValueError) as error:
                raise DamagedObject(id, f"what it leads to cannot be told: {error}") from error


def _below(one: Object) -> Sequence[ObjectId]:
    """What an object leads to; nothing if it is none of ours."""
    try:
        return links(one)
    except FormatError:
        return ()


def expect_refs(batch: Batch, refs: Mapping[str, Ref]) -> None:
    """Raise `RefMoved` if a ref is not where a batch expects it."""
    for name, expected, _ in batch.moves:
        ref = refs.get(name)
        actual = None if ref is None else ref.target
        if actual != expected:
            raise RefMoved(name, expected, actual)


def shared_frame(one: Object) -> bytes:
    """A shared object as it is stored: its kind, and what it holds."""
    return bytes((one.kind,)) + compress(one.payload)


def shared_object(id: ObjectId, frame: bytes) -> Object:
    """The shared object in a frame, which has its kind in front; raises `DamagedObject`."""
    try:
        kind, payload = Kind(frame[0]), expand(frame[1:])
    except (FormatError, ValueError, IndexError) as error:
        raise DamagedObject(id, str(error)) from error
    if object_id(kind, payload) != id:
        raise DamagedObject(id, "its bytes do not match its hash")
    return Object(id, kind, payload)


def _divided(
    objects: Sequence[Object], share: bool
) -> tuple[Sequence[Object], dict[ObjectId, Object]]:
    """The objects of a record, and those that are shared."""
    if share:
        return (
            [one for one in objects if one.kind == Kind.COMMIT],
            {one.id: one for one in objects if one.kind != Kind.COMMIT},
        )
    total = 0
    for one in objects:
        total += len(one.payload)
    if total < LARGE_TEXT:
        return objects, {}
    if total > LARGE_COMMIT:
        alone = {one.id for one in objects if one.kind != Kind.COMMIT and not _below(one)}
    else:
        chunks = [one for one in objects if one.kind == Kind.CHUNK]
        if sum([len(one.payload) for one in chunks]) < LARGE_TEXT:
            return objects, {}
        alone = {one.id for one in chunks}
    alone.update(_text_roots(objects, alone))
    shared = {one.id: one for one in objects if one.id in alone}
    return [one for one in objects if one.id not in alone], shared


def _text_roots(objects: Sequence[Object], alone: set[ObjectId]) -> set[ObjectId]:
    """What leads to nothing but shared chunks: who holds a large text then has one link to it."""
    found: set[ObjectId] = set()
    for one in objects:
        if one.kind == Kind.CHUNKS_INDEX or (one.kind == Kind.ROOT and is_text(one)):
            below = links(one)
            if below and all(id in alone or id in found for id in below):
                found.add(one.id)
    return found


def _match(record: Record, wanted: set[ObjectId], found: dict[ObjectId, Place]) -> None:
    """Look for wanted nodes in a record, and take those off that are there."""
    for at, node in enumerate(record.nodes()):
        if node is not None and node.id in wanted:
            wanted.discard(node.id)
            found[node.id] = place_of(record.sequence, at)
