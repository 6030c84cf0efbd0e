"""Stores whose spaces are logs of records: what all such engines share.

An engine appends a record in one step, and finds the row of a record or the segment that it was
packed into. What becomes a record and what is shared is decided here, and what a process remembers
of a space; how records are read and nodes found is in `lookup`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, Unpack

from ropewalk.errors import (
    Corrupt,
    FormatError,
    MissingObjects,
    RefMoved,
    RopewalkError,
    StoreFull,
    WriteIdReused,
)
from ropewalk.store.compression import SMALL_BODY, compress
from ropewalk.store.contract import StoreOptions
from ropewalk.store.lookup import STEPS, LogReader
from ropewalk.store.model import LeaseRecord, Operation, Ref, check_ids
from ropewalk.store.names import check_space
from ropewalk.store.packer import FEWEST_AT_CLOSE, TAIL_BYTES, TAIL_RECORDS, Packer, pack_all
from ropewalk.store.record import (
    BY_HASH,
    DICTIONARY,
    GROUP,
    POSITION_BITS,
    Batch,
    Place,
    Record,
    encode_body,
    encode_header,
    fenced_off,
    write_id_of,
)
from ropewalk.store.segment import Packed
from ropewalk.tree.nodes import is_text, links
from ropewalk.tree.objects import Kind, Object, ObjectId

if TYPE_CHECKING:
    from ropewalk.store.collection import Collected, Progress, Sweep
    from ropewalk.store.statistics import Stats
    from ropewalk.store.verification import Report

LARGE_COMMIT: Final = 256 * 1024
"""What a commit of more bytes brings is shared, but for what leads to other nodes."""
LARGE_TEXT: Final = 32 * 1024
"""So many bytes of chunks are those of a large text, and shared."""

_PLACES: Final = 1 << 14
_SPACES: Final = 1024


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


class LogStore(LogReader):
    """A store whose spaces are logs of records."""

    _tail_bytes: ClassVar[int] = TAIL_BYTES
    """A tail of more bytes is packed."""

    def __init__(self, **options: Unpack[StoreOptions]) -> None:
        super().__init__(**options)
        self._packer = Packer(self)

    # What an engine supplies.

    @abstractmethod
    def _commit(self, batch: Batch) -> Operation:
        """Append a record, an `Append`, in one atomic step, durably, and wake who subscribed."""

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
            for below in (step.root, step.metadata, step.events):
                if below is not None:
                    self._steps[append.space, below] = step.id
            if len(self._steps) > STEPS:
                self._trim_steps()
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


def expect_allowed(
    append: Append, leases: Mapping[str, LeaseRecord], refs: Mapping[str, Ref], epoch: int
) -> None:
    """Raise unless a record may be appended to a space that is so, in the order of all engines."""
    for fence in append.fences:
        held = leases.get(fence.name)
        if (0 if held is None else held.token) != fence.token:
            raise fenced_off(append.space, fence)
    expect_refs(append, refs)
    if epoch != append.known_epoch:
        raise Moved(epoch)
    if append.missing:
        raise MissingObjects(sorted(append.missing))


def shared_frame(one: Object) -> bytes:
    """A shared object as it is stored: its kind, and what it holds."""
    return bytes((one.kind,)) + compress(one.payload)


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
