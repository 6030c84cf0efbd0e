"""The part that stores on a key-value store and in a bucket share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Final

from ropewalk.errors import Corrupt, NotAllowed, RopewalkError
from ropewalk.store.collection import Sweep, names_of, touches, unreached
from ropewalk.store.log import LogStore, Moved, SpaceCache, expect_allowed
from ropewalk.store.model import (
    REMEMBERED_WRITES,
    Header,
    LeaseRecord,
    Operation,
    Ref,
    Stored,
    View,
    decode_header,
    encode_header,
)
from ropewalk.store.record import GROUP, Append, Place, Row, same_group, seal
from ropewalk.store.records import cells
from ropewalk.store.records.cells import HEADER, Cells, Parts
from ropewalk.store.records.shared import SharedObjects
from ropewalk.store.records.space import Moment, Space
from ropewalk.store.records.spaces import Spaces
from ropewalk.store.segment import Packed, commit_name, key_name
from ropewalk.store.watch import Listeners
from ropewalk.tree.objects import ObjectId

BUSY_SECONDS: Final = 30.0


class CellStore(LogStore):
    """A store of records whose spaces are cells. Subclasses call `_use` before anything else."""

    _tail_bytes: ClassVar[int] = 64 * 1024
    _inline_bytes: ClassVar[int] = 8 * 1024
    """A larger record is stored in a part of its own instead of the space's cell."""
    _pack_bytes: ClassVar[int] = 8 * 1024 * 1024
    """The approximate maximum of shared objects in one part, in bytes."""
    _waits: ClassVar[tuple[float, float]] = 0.0005, 0.02
    """The first and the longest wait before a lost swap is retried."""
    _header: Header

    @property
    def header(self) -> Header:
        """The store's id, format and algorithm."""
        return self._header

    # Opening and closing.

    def _use(self, values: Cells, parts: Parts) -> None:
        """Use these cells and parts."""
        self._cells, self._parts = values, parts
        self._listeners = Listeners()
        self._log = Spaces(values, parts, BUSY_SECONDS, self._waits, self._forget_space)
        self._shared = SharedObjects(values, parts, self._pack_bytes, BUSY_SECONDS, self._waits)

    def _opened_header(self) -> Header | None:
        """The header; None if there is no store."""
        data = self._cells.get(HEADER)
        if data is None:
            return None
        if cells.is_older(data):
            raise NotAllowed(
                f"the store in {self._shown()} has format 1, from before the first release, which "
                "this version does not read: choose another place, or remove it to begin anew."
            )
        return decode_header(cells.unseal(HEADER, data))

    def _create(self, others: Iterable[str]) -> None:
        """Create an empty store; the header comes last. `others` are existing keys."""
        left = sorted(set(others) - {cells.SHARED})
        if left and self._cells.get(HEADER) is None:
            raise Corrupt(
                f"{self._shown()} holds {left[0]!r}, but {HEADER!r} is gone. Nothing was changed: "
                "restore it from a copy, or choose another place."
            )
        self._shared.create()
        header = encode_header(Header(os.urandom(16)))
        self._cells.swap(HEADER, None, cells.seal(HEADER, header))

    def _shown(self) -> str:
        """The location, without secrets."""
        return self.backend_id

    # Committing.

    def _commit(self, batch: Append) -> Operation:
        space = batch.space
        cache = self._space(space)
        with self._log.turn(space) as patience:
            fresh, decided, overflow = False, -1, None
            frames: dict[int | None, bytes] = {}
            while True:
                with self._log.looking(space, fresh=fresh) as found:
                    now, refs, leans = found.moment, found.refs_of(batch.moves), found.leans()
                try:
                    if self._space(space) is not cache:  # Its history may have been rewound.
                        raise Moved(now.head.epoch)
                    recorded = self._decide(batch, now, refs, decided)
                except (RopewalkError, Moved):
                    if fresh:
                        raise
                    fresh = True  # A refusal based on a stale read may not hold.
                    continue
                if recorded is not None:
                    break
                if batch.names or batch.shared:
                    if now.raw is None:
                        self._log.create(space)
                        fresh = True
                        continue
                    self._shared.keep(batch.shared, batch.names)
                sequence = now.sequence + 1
                dictionary, frame = _framed(batch, cache, leans, sequence, frames)
                large = len(frame) > self._inline_bytes
                overflow = self._log.put_overflow(space, frame, now, overflow) if large else None
                if self._log.append(now, batch, dictionary, seal(space, sequence, frame), overflow):
                    break
                if fresh:
                    self._log.wait(space, patience)
                fresh, decided = True, now.sequence
            if recorded is None:
                self._landed(batch, sequence)
        self._log.set_known(space)
        if recorded is not None:
            batch.recorded = recorded
            return recorded
        self._listeners.wake(space)
        self._watch_tail(cache, space, sequence, len(frame))
        return Operation(
            space, sequence, batch.moves, batch.write_id, batch.time, now.head.epoch,
            batch.metadata,
        )  # fmt: skip

    def _decide(
        self, batch: Append, now: Moment, refs: Mapping[str, Ref], decided: int
    ) -> Operation | None:
        """Raise if a commit must not be made on this snapshot; returns its record if it already
        was.

        If an attempt after record `decided` was reported as failed, it may have landed
        nevertheless.
        """
        after = max(now.sequence - REMEMBERED_WRITES, 0)
        if batch.fresh:
            after = now.sequence if decided < 0 else decided
        if after < now.sequence:
            latest = self._newest_first(batch.space, after, now.sequence)
            recorded = self._find_write(batch, latest)
            if recorded is not None:
                return recorded
        leases = {one.name: one for one in now.head.leases} if batch.fences else {}
        expect_allowed(batch, leases, refs, now.head.epoch)
        return None

    # The log. Records are immutable, so a cached one is never read again.

    def _epoch(self, space: str) -> int:
        with self._log.looking(space, fresh=False) as found:
            return found.head.epoch

    def _span(self, space: str) -> tuple[int, int]:
        with self._log.looking(space) as found:
            return found.head.packed, found.sequence

    def _rows(self, space: str, first: int, last: int) -> list[Row]:
        return self._log.ask(space, lambda found: found.rows(first, last))

    def _load(self, space: str, sequence: int) -> list[Row] | Packed | None:
        first = (sequence - 1) // GROUP * GROUP + 1

        def question(found: Space) -> list[Row] | Packed | None:
            if sequence > found.head.packed:
                return found.rows(first, sequence)
            return found.segment(sequence)

        with self._log.looking(space, fresh=False) as found:
            seen = sequence <= found.sequence
        return self._log.ask(space, question, fresh=not seen)

    def _segment(self, space: str, sequence: int) -> Packed | None:
        return self._log.ask(space, lambda found: found.segment(sequence))

    def _locate(self, space: str, ids: Sequence[ObjectId]) -> dict[ObjectId, int]:
        def question(found: Space) -> dict[ObjectId, int]:
            rows = {id: found.find(commit_name(id)) for id in ids}
            return {id: some[-1] for id, some in rows.items() if some}

        return self._log.ask(space, question, fresh=False)

    def _find(self, space: str, key: bytes) -> list[int]:
        def question(found: Space) -> list[int]:
            first = found.head.packed + 1
            tail = [at for at, one in enumerate(found.entries, first) if one.key == key]
            return found.find(key_name(key)) + tail

        return self._log.ask(space, question)

    # Spaces.

    def _ref(self, space: str, name: str) -> Ref | None:
        with self._log.looking(space) as found:
            return found.refs.get(name)

    def _view(self, space: str, prefix: str) -> View:
        with self._log.looking(space) as found:
            refs = [ref for ref in found.refs.values() if ref.name.startswith(prefix)]
            return View(found.sequence, found.head.epoch, tuple(sorted(refs)))

    def _spaces(self, prefix: str) -> list[str]:
        return self._log.names(prefix)

    def _subscribe(self, space: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Wakes for commits of this store object; those of others are polled."""
        return self._listeners.add(space, wake)

    # Leases.

    def _lease(self, space: str, name: str) -> LeaseRecord | None:
        return self._lease_records(space).get(name)

    def _leases(self, space: str, prefix: str) -> list[LeaseRecord]:
        return sorted(
            one for one in self._lease_records(space).values() if one.name.startswith(prefix)
        )

    def _lease_records(self, space: str) -> dict[str, LeaseRecord]:
        with self._log.looking(space) as found:
            return {one.name: one for one in found.head.leases}

    def _grant_lease(
        self, space: str, name: str, expected: LeaseRecord | None, holder: str, duration: float
    ) -> LeaseRecord | None:
        granted: LeaseRecord | None = None

        def grant(leases: dict[str, LeaseRecord], tokens: int) -> int | None:
            nonlocal granted
            if leases.get(name) != expected:
                return None
            granted = leases[name] = LeaseRecord(name, holder, tokens + 1, 0, duration)
            return granted.token

        return granted if self._log.change_leases(space, grant) else None

    def _swap_lease(self, space: str, expected: LeaseRecord, record: LeaseRecord | None) -> bool:
        def swap(leases: dict[str, LeaseRecord], tokens: int) -> int | None:
            if leases.get(expected.name) != expected:
                return None
            del leases[expected.name]
            if record is not None:
                leases[record.name] = record
            return tokens

        return self._log.change_leases(space, swap)

    # Segments and collection.

    def _settle(
        self, space: str, packed: Packed, commits: Sequence[tuple[ObjectId, Place]]
    ) -> bool:
        return self._log.pack(space, packed, commits)

    def _replace(self, space: str, found: Sweep) -> bool:
        gone = {id for id, _ in found.gone}
        last = self._span(space)[1]
        since = self._records_after(space, found.last, last)
        if touches(since, found.dead, gone):
            return False

        def agrees() -> bool:
            later = self._records_after(space, last, self._span(space)[1])
            return not touches(later, found.dead, gone)

        named = found.named | names_of(since)
        return self._log.replace(space, found.epoch, found.replaced, named, last, agrees)

    def _names_more(self, space: str, named: set[ObjectId]) -> bool:
        return self._log.ask(space, lambda found: not found.packed_names() <= named)

    # Shared objects.

    def _read_shared(self, ids: Sequence[ObjectId]) -> dict[ObjectId, bytes]:
        return self._shared.frames(ids)

    def _present_shared(self, ids: Sequence[ObjectId]) -> set[ObjectId]:
        return self._shared.present(ids)

    def _leading_shared(self, ids: Iterable[ObjectId]) -> set[ObjectId]:
        return self._shared.leading(ids)

    def _scan_shared(self) -> Iterator[Stored]:
        return self._shared.scan()

    def _count_shared(self) -> tuple[int, int]:
        sizes = [one.stored for one in self._shared.scan()]
        return len(sizes), sum(sizes)

    def _collect_shared(self, named: set[ObjectId] | None) -> tuple[int, int]:
        there = {one.id: one.stored for one in self._shared.scan()}
        doomed = unreached(self, there, self._named() if named is None else named)
        if named is None:
            if doomed:
                round = self._shared.mark(doomed)
                for space in self._log.all_names():
                    self._log.raise_epoch(space)
                # Commits may have referenced some before the epoch of their space was raised;
                # from here on, none can.
                doomed = unreached(self, doomed, self._named())
                doomed = self._shared.drop(set(doomed), round)
            self._shared.remove_orphans()
            self._log.remove_orphans()
        return len(doomed), sum(doomed.values())

    def _named(self) -> set[ObjectId]:
        """The shared objects that spaces reference."""
        return set[ObjectId]().union(
            *[self._log.ask(space, Space.names) for space in self._log.all_names()]
        )

    def _discard(self, ids: Sequence[ObjectId]) -> None:
        self._shared.discard(ids)

    # Care.

    def _examine(self, read_data: bool) -> Iterator[tuple[str, str]]:
        for key in self._shared.missing_parts():
            yield key, f"{cells.lost(key)}"
        for space in self._log.all_names():
            try:
                self._log.ask(space, Space.names)
            except Corrupt as error:
                yield space, str(error)


def _framed(
    batch: Append, cache: SpaceCache, leans: int, sequence: int, frames: dict[int | None, bytes]
) -> tuple[int | None, bytes]:
    """The record whose dictionary this one uses, and its frame; `frames` caches encoded ones."""
    dictionary, body = cache.dictionary(batch)
    # While the last record of this store object is there, its dictionaries are there, too.
    there = cache.tip.last == leans
    if dictionary is not None and not (there and same_group(sequence, dictionary)):
        dictionary = body = None
    if dictionary not in frames:
        frames[dictionary] = batch.frame(body)
    batch.leans = dictionary is not None
    return dictionary, frames[dictionary]
