"""`LogStore`: the base of all engines, whose spaces are logs of records.

An engine appends a record in one atomic step, and loads records from the tail or from segments.
Here a commit becomes a record (`_draft`): which objects go into the record and which are shared,
and where the older nodes are that they link to. What a process caches of a space is here too
(`SpaceCache`); how records are read and nodes found is in `lookup`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
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
    Append,
    Place,
    Record,
    encode_body,
    encode_header,
    fenced_off,
    hint,
    own_hint,
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
"""From a commit of more bytes than this all leaves are stored as shared objects."""
LARGE_TEXT: Final = 32 * 1024
"""Chunks of a commit that have at least so many bytes together are stored as shared objects."""

_PLACES: Final = 1 << 14
_HELD: Final = 4 * DICTIONARY
"""How many bytes of large records are held for each space, to be dictionaries."""
_LARGE_NODE: Final = 1024
"""Nodes of fewer bytes do not count where records are compared."""
_END: Final = 32
_LENGTH: Final = 3  # At most, of the length that a node begins with.
_SPACES: Final = 1024


class Moved(Exception):
    """The epoch of the space has changed, so cached places are stale. Nothing was written."""

    def __init__(self, epoch: int) -> None:
        super().__init__()
        self.epoch = epoch


class Large(NamedTuple):
    """A large record, as a dictionary of a later one of its group.

    What changes is often a few large nodes in turn. So of several records the one is taken that
    holds other versions of the same nodes, which mostly begin or end alike.
    """

    sequence: int
    body: bytes
    ends: frozenset[bytes]
    """How its large nodes begin and end."""

    def resemblance(self, nodes: Sequence[tuple[bytes, bytes, int]]) -> int:
        """How many bytes of another record are in nodes that resemble those of this one."""
        ends = self.ends
        return sum([size for start, end, size in nodes if start in ends or end in ends])


def _large_nodes(append: Append) -> list[tuple[bytes, bytes, int]]:
    """How the large nodes of a record begin and end, and their sizes."""
    return [
        (one.payload[_LENGTH : _LENGTH + _END], one.payload[-_END:], len(one.payload))
        for one in append.objects
        if len(one.payload) >= _LARGE_NODE
    ]


class Tip(NamedTuple):
    """The end of a log, and what may be the dictionary of the next record.

    A tuple, because threads replace it without a lock.
    """

    last: int
    """The last record that this process appended."""
    leans_on: int
    body: bytes
    """The end of the body of record `leans_on`: the dictionary of the next, unless it is large."""
    large: tuple[Large, ...] = ()
    """Large records of the group, each of which a later one of this process leans on."""

    def dictionary(self, append: Append) -> tuple[int | None, bytes | None]:
        """The dictionary for the next record and whose body it is; none at the start of a group."""
        if not self.body or not self.last % GROUP:
            return None, None
        if self.large and len(append.body) > SMALL_BODY:
            nodes = _large_nodes(append)
            best = max(self.large, key=lambda one: (one.resemblance(nodes), one.sequence))
            return best.sequence, best.body
        return self.leans_on, self.body

    def after(self, sequence: int, append: Append) -> Tip:
        """The tip after a record was appended.

        Small records of a group share the dictionary of the first, so that its prepared
        compressor can be reused.
        """
        body = append.body
        follows = append.leans and sequence - 1 == self.last and self.last % GROUP
        large = self.large if follows else ()
        if follows and len(body) <= len(self.body) * 5 // 4 <= SMALL_BODY:
            return Tip(sequence, self.leans_on, self.body, large)
        end = body[-DICTIONARY:]
        if len(body) > SMALL_BODY:
            ends = frozenset([one for node in _large_nodes(append) for one in node[:2]])
            large = (*large, Large(sequence, end, ends))
            while sum([len(one.body) for one in large]) > _HELD:
                large = large[1:]
        return Tip(sequence, sequence, end, large)


class SpaceCache:
    """What a process caches of one space. A new epoch invalidates all of it."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.places = Places()
        """Places of nodes by id; `BY_HASH` for shared objects."""
        self.named: set[ObjectId] = set()
        """Shared objects that the space is known to name."""
        self.tip = Tip(0, 0, b"")
        self.packed = 0
        """The last record known to be packed."""
        self.looked = 0
        self.tail_bytes = 0
        self.segment = 0
        """The key of the segment that was read last."""

    def dictionary(self, append: Append) -> tuple[int | None, bytes | None]:
        """The dictionary for the next record, as `Tip.dictionary`."""
        return self.tip.dictionary(append)


class Places(dict["ObjectId", "Place"]):
    """A cache of places by id, in two generations: hits survive `trim`, the rest is evicted."""

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
        """If there are too many, begin a new generation and evict the one before the last."""
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
    def _commit(self, append: Append) -> Operation:
        """Append a record in one atomic step, durably, and wake who subscribed."""

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
        """Remove shared objects, even if spaces still name them."""

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
        """Remove damaged shared objects, so that they can be stored again."""
        self._check_open()
        self._discard(check_ids(ids, "what is taken out"))

    # What is remembered.

    def _space(self, space: str) -> SpaceCache:
        """The cache of a space, created with its current epoch."""
        known = self._spaces_known.get(space)
        if known is None:
            epoch = self._epoch(space)
            self._note(space, epoch, 0)
            known = self._spaces_known.get(space) or SpaceCache(epoch)
        return known

    def _note(self, space: str, epoch: int, last: int) -> None:
        """Cache the epoch and last record of a space that an engine has just read."""
        known = self._spaces_known.get(space)
        if known is None:
            with self._cache_lock:
                known = self._spaces_known.setdefault(space, SpaceCache(epoch))
                while len(self._spaces_known) > _SPACES:
                    self._spaces_known.popitem(last=False)
        if known.epoch == epoch and last > known.tip.last:
            known.tip = Tip(last, last, b"")

    def _forget_space(self, space: str) -> None:
        """Drop all caches of a space: a collection rewrote its segments."""
        with self._cache_lock:
            self._forgotten += 1
            self._spaces_known.pop(space, None)
            for key in [key for key in self._opened if key[0] == space]:
                self._held -= self._opened.pop(key)[1]

    # Committing.

    def _land(self, append: Append) -> Operation:
        while True:
            self._draft(append)
            try:
                return self._commit(append)
            except Moved:
                self._forget_space(append.space)
            except StoreFull:
                if not self._quota.make():
                    raise

    def _draft(self, append: Append) -> None:
        """Turn a commit into a record.

        Objects are divided into those of the record and shared ones; then the places of older
        nodes that they link to are found, in the cache or by reading the log, and encoded as
        hints. What is not found is in `missing`: the engine raises for it after it has checked
        fences and refs.
        """
        space, step = append.space, append.step
        cache = self._space(space)
        private, shared = _divided(append.sent, append.share)
        hints = dict.fromkeys(shared, hint(BY_HASH))
        below: list[Sequence[ObjectId]] = []
        for at, one in enumerate(private):
            hints[one.id] = own_hint(at)
            if one.kind == Kind.VALUE and 0xC7 not in one.payload:
                below.append(())
            elif step is not None and one.id == step.id:
                below.append(step.links)
            else:
                below.append(_below(one))
        older = append.needs.union(append.targets, *below).difference(hints)
        places: Mapping[ObjectId, Place] = {}
        append.missing, append.names = (), frozenset()
        if older:
            places = cache.places.find(older)
            if len(places) != len(older):
                places = self._find_places(space, list(older))
                append.missing = tuple([id for id in older if id not in places])
                hints.update(dict.fromkeys(append.missing, hint(BY_HASH)))
            if BY_HASH in places.values():
                by_hash = [id for id, place in places.items() if place == BY_HASH]
                append.names = older.intersection(by_hash) - cache.named
            hints.update(zip(places, map(hint, places.values()), strict=True))
        if shared:
            led = {id for some in below for id in some}.union([one.target for one in append.moves])
            append.names = append.names.union(shared.keys() & led)
        parent = places.get(step.parents[0]) if step is not None and step.parents else None
        append.parent = None if not parent else parent >> POSITION_BITS
        append.objects, append.shared, append.known_epoch = private, shared, cache.epoch
        append.body = encode_body(encode_header(append, below), private, below, hints)

    def _landed(self, append: Append, sequence: int) -> None:
        """Cache the places in an appended record, unless the epoch has changed since."""
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

    def _find_write(self, append: Append, latest: Iterable[Record]) -> Operation | None:
        """The earlier operation with the write id of a commit, among the latest of its space.

        Raises `WriteIdReused` if that was another write.
        """
        for record in latest:
            if write_id_of(record.header) == append.write_id:
                operation = self._operation(append.space, record)
                nodes = record.nodes()
                # If some of its nodes were collected, they cannot be compared.
                known = None if None in nodes else {node.id for node in nodes if node is not None}
                if (
                    operation.moves == append.moves
                    and operation.metadata == append.metadata
                    and (known is None or known.issuperset([one.id for one in append.objects]))
                ):
                    return operation
                raise WriteIdReused(
                    f"write id {append.write_id!r} stands for operation {record.sequence} of "
                    f"{append.space!r}, which was another write. Take a new write id for a new "
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
        """Pack what is left of long tails; whether anything was packed since the store opened."""
        self._packer.close()
        done = self._packer.packed
        with suppress(RopewalkError):
            done += pack_all(self, list(self._spaces_known), FEWEST_AT_CLOSE)
        return done > 0

    def _watch_tail(self, cache: SpaceCache, space: str, sequence: int, size: int) -> None:
        """Ask the packer to pack a tail that has become long."""
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
    """The links of an object; none if its payload is not a node of ours."""
    try:
        return links(one)
    except FormatError:
        return ()


def expect_refs(append: Append, refs: Mapping[str, Ref]) -> None:
    """Raise `RefMoved` if a ref is not where a commit expects it."""
    for name, expected, _ in append.moves:
        ref = refs.get(name)
        actual = None if ref is None else ref.target
        if actual != expected:
            raise RefMoved(name, expected, actual)


def expect_allowed(
    append: Append, leases: Mapping[str, LeaseRecord], refs: Mapping[str, Ref], epoch: int
) -> None:
    """Check fences, refs, epoch and needs, in the order that all engines keep."""
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
    """Divide objects into those of the record and those stored as shared objects."""
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
    """Roots and indexes over shared chunks only: a record then has one link to a large text."""
    found: set[ObjectId] = set()
    for one in objects:
        if one.kind == Kind.CHUNKS_INDEX or (one.kind == Kind.ROOT and is_text(one)):
            below = links(one)
            if below and all(id in alone or id in found for id in below):
                found.add(one.id)
    return found
