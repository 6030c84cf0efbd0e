"""The spaces of a store of records: how they are read and changed.

Parts are written before the swap that references them, and removed after the swap that drops them.
A reader that misses a part therefore reads the cell again: if the cell still references it, it is
lost. Before unreferenced parts are removed, the cell is swapped with a higher `sweep`. A writer
that put parts before that, and is about to reference them, sees the change and writes them again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple, TypeVar

from ropewalk.errors import RopewalkError, Unavailable
from ropewalk.store.forking import freed_after_fork
from ropewalk.store.model import LeaseRecord
from ropewalk.store.record import GROUP, Append, Place, sequence_of
from ropewalk.store.records.cells import (
    KNOWN,
    PARTS,
    SPACES,
    Cells,
    Extent,
    Gone,
    Parts,
    lost,
    merged,
    new_name,
    remove_parts,
    seal,
)
from ropewalk.store.records.space import (
    EMPTY,
    Index,
    Moment,
    Space,
    decode_space,
    encode_entry,
    encode_index,
    encode_segment,
    encode_space,
    encode_state,
    part_key,
    space_key,
)
from ropewalk.store.retry import Backoff
from ropewalk.store.segment import Packed, commit_name, key_name, lookup_row
from ropewalk.tree.objects import ObjectId

T = TypeVar("T")

_SPACES: Final = 256  # How many are cached.
_STRIPES: Final = 64
_CRC: Final = 4


class Overflow(NamedTuple):
    """The part of a large record that is not referenced yet."""

    name: str
    frame: bytes
    sweep: int


class _Plan(NamedTuple):
    """Parts to be referenced instead of others."""

    state: str
    """Of the space before the change."""
    sweep: int
    named: str
    """The new state."""
    written: dict[str, bytes]
    replaced: set[str]


class Spaces:
    """The spaces of one store object. Safe to share between threads."""

    def __init__(
        self,
        cells: Cells,
        parts: Parts,
        busy_seconds: float,
        waits: tuple[float, float],
        rewound: Callable[[str], None],
    ) -> None:
        """`rewound` is called with a space whose history may have been rewound."""
        self._cells, self._parts, self._rewound = cells, parts, rewound
        self._busy_seconds, self._waits = busy_seconds, waits
        self._lock = freed_after_fork(threading.Lock())
        self._spaces: OrderedDict[str, Space] = OrderedDict()
        self._turns = [freed_after_fork(threading.RLock()) for _ in range(_STRIPES)]

    # Reading.

    @contextmanager
    def looking(self, name: str, *, fresh: bool = True) -> Iterator[Space]:
        """A space, read again if `fresh`; otherwise the cached one, if any."""
        space = self._space(name)
        raw, known = None, space.known
        if fresh := fresh or not space.looked:
            raw, known = self._read(name, space)
        with space.lock:
            if fresh:
                self._refresh(space, raw, known)
            yield space

    def ask(self, name: str, question: Callable[[Space], T], *, fresh: bool = True) -> T:
        """Query a space, reading it again if a part is missing."""
        missed = ""
        while True:
            with self.looking(name, fresh=fresh) as space:
                try:
                    return question(space)
                except Gone as gone:
                    if gone.key == missed:
                        raise lost(missed) from None
                    missed, fresh = gone.key, True

    def names(self, prefix: str) -> list[str]:
        """The spaces that have operations."""
        known = {key.removeprefix(KNOWN) for key in self._cells.keys(KNOWN + prefix)}
        # Some may be new, or have leases only.
        others = [key for key in self._cells.keys(SPACES + prefix)
                  if key.removeprefix(SPACES) not in known]  # fmt: skip
        for key, raw in self._cells.get_many(others).items():
            name = key.removeprefix(SPACES)
            if decode_space(name, raw).sequence:
                known.add(name)
        return sorted(known)

    def all_names(self) -> list[str]:
        """All spaces that have a cell."""
        return sorted(key.removeprefix(SPACES) for key in self._cells.keys(SPACES))

    def _space(self, name: str) -> Space:
        with self._lock:
            found = self._spaces.get(name)
            if found is None:
                found = self._spaces[name] = Space(name, self._parts)
                if len(self._spaces) > _SPACES:
                    self._spaces.popitem(last=False)
            else:
                self._spaces.move_to_end(name)
            return found

    def _read(self, name: str, space: Space) -> tuple[bytes | None, bool]:
        """The cell of a space, and whether the space is known to have operations."""
        if space.known:
            return self._cells.get(space_key(name)), True
        found = self._cells.get_many([space_key(name), KNOWN + name])
        return found.get(space_key(name)), KNOWN + name in found

    def _refresh(self, space: Space, raw: bytes | None, known: bool) -> None:
        """Update the cached space to the cell just read."""
        missed, again = "", False
        while True:
            space.known = space.known or known
            if raw == space.moment.raw and (raw is not None or not space.known):
                space.looked = True
                return
            now = Moment(None, EMPTY, []) if raw is None else decode_space(space.name, raw)
            if again or (now.head.revision >= space.head.revision and (raw or not space.known)):
                if raw is None and (space.known or space.sequence):
                    raise lost(space_key(space.name))
                if not space.continues(now):
                    self._rewound(space.name)
                try:
                    space.take(now)
                except Gone as gone:
                    if gone.key == missed:
                        raise lost(missed) from None
                    missed = gone.key
                else:
                    space.looked = True
                    return
            # Another thread may have read a newer one in the meantime.
            again = True
            raw, known = self._read(space.name, space)

    # Changing.

    @contextmanager
    def turn(self, name: str) -> Iterator[Backoff]:
        """Wait for other threads of this store object that change a space."""
        with self._turns[hash(name) % _STRIPES]:
            yield Backoff(self._busy_seconds, *self._waits)

    def wait(self, name: str, backoff: Backoff) -> None:
        """Back off after losing to other writers; `Unavailable` if that takes too long."""
        if not backoff.wait():
            raise Unavailable(
                f"the space {name!r} was changed by others at every try for "
                f"{self._busy_seconds:g} seconds. Nothing was written; try again."
            )

    def swap(self, name: str, now: Moment, fresh: Moment) -> bool:
        """Change a space; False if its cell has changed."""
        data = encode_space(name, fresh.head, fresh.tail)
        if not self._cells.swap(space_key(name), now.raw, data):
            return False
        space = self._space(name)
        with space.lock:
            if space.moment.raw == now.raw:
                with suppress(Gone, RopewalkError):  # The next reader reads it.
                    space.take(Moment(data, fresh.head, fresh.tail))
                    space.looked = True
        return True

    def create(self, name: str) -> None:
        """Create the cell of a space if it is absent, so that a collection sees the space."""
        self.swap(name, Moment(None, EMPTY, []), Moment(None, EMPTY.changed(), []))

    def append(
        self,
        now: Moment,
        batch: Append,
        dictionary: int | None,
        frame: bytes,
        overflow: Overflow | None,
    ) -> bool:
        """Append a record, with an optional overflow part; False if another writer was faster."""
        entry = encode_entry(
            batch,
            dictionary,
            frame[:_CRC] if overflow else frame,
            overflow.name if overflow else "",
        )
        fresh = Moment(None, now.head.changed(), [*now.tail, entry])
        done = self.swap(batch.space, now, fresh)
        if done:
            self._space(batch.space).own = fresh.sequence, entry
        return done

    def set_known(self, name: str) -> None:
        """Record that a space has operations."""
        space = self._space(name)
        if not space.known:
            self._cells.swap(KNOWN + name, None, seal(KNOWN + name, None))
            space.known = True

    def put_overflow(
        self, name: str, frame: bytes, now: Moment, before: Overflow | None
    ) -> Overflow:
        """Write the overflow part of a large record, unless that was done before."""
        if before is not None and (before.frame, before.sweep) == (frame, now.head.sweep):
            return before
        made = Overflow(new_name(), frame, now.head.sweep)
        self._parts.set_many({part_key(name, made.name): frame})
        return made

    def change_leases(
        self, name: str, change: Callable[[dict[str, LeaseRecord], int], int | None]
    ) -> bool:
        """Change the leases of a space; False, with nothing changed, if `change` returns None.

        It receives the leases and the last token, and returns the new ones.
        """
        fresh = False
        with self.turn(name) as backoff:
            while True:
                with self.looking(name, fresh=fresh) as space:
                    now = space.moment
                leases = {one.name: one for one in now.head.leases}
                tokens = change(leases, now.head.tokens)
                if tokens is not None:
                    head = now.head.changed(tokens=tokens, leases=tuple(leases.values()))
                    if self.swap(name, now, now._replace(head=head)):
                        return True
                elif fresh:
                    return False
                if fresh:
                    self.wait(name, backoff)
                fresh = True

    def raise_epoch(self, name: str) -> None:
        """Raise the epoch of a space, so that commits prepared before cannot land."""
        with self.turn(name) as backoff:
            while True:
                with self.looking(name) as space:
                    now = space.moment
                head = now.head.changed(epoch=now.head.epoch + 1)
                if self.swap(name, now, now._replace(head=head)):
                    return
                self.wait(name, backoff)

    # Packing and collection.

    def pack(self, name: str, packed: Packed, commits: Sequence[tuple[ObjectId, Place]]) -> bool:
        """Replace records by a segment; False if another writer did."""

        def plan(space: Space) -> _Plan | None:
            now, last = space.moment, packed.last
            if now.head.packed + 1 != packed.first or now.sequence < last:
                return None
            done = space.entries[: last - now.head.packed]
            rows = [lookup_row(commit_name(id), sequence_of(place)) for id, place in commits]
            rows += [lookup_row(key_name(one.key), sequence)
                     for sequence, one in enumerate(done, packed.first)
                     if one.key is not None]  # fmt: skip
            ids = {id for one in done for id in one.names}
            segment = new_name()
            index = Index(((packed.first, last, segment),), b"".join(rows), b"".join(sorted(ids)))
            older = list(space.indexes)
            count = merged(older, _size(index))
            joined, older = older[len(older) - count :], older[: len(older) - count]
            for one in reversed(joined):
                index = space.index(one.name).joined(index)
            key = part_key(name, segment)
            made = self._planned(space, older, [index], {key: encode_segment(key, packed)})
            gone = {one.name for one in joined} | {one.overflow for one in done if one.overflow}
            return made._replace(replaced=made.replaced | {part_key(name, one) for one in gone})

        def swap(now: Moment, made: _Plan) -> Moment | None:
            if packed.last % GROUP and now.sequence > packed.last:
                return None  # It may depend on what would be removed.
            head = now.head.changed(packed=packed.last, state=made.named)
            return Moment(None, head, now.tail[packed.last - now.head.packed :])

        return self._rename(name, plan, swap)

    def replace(
        self,
        name: str,
        epoch: int,
        segments: Sequence[Packed],
        named: set[ObjectId],
        until: int,
        agrees: Callable[[], bool],
    ) -> bool:
        """Replace segments, and raise the epoch; False if another collection did.

        `named` are the shared objects that records up to number `until` reference. If there are
        later records, `agrees` checks whether the collection may still go on.
        """
        changed = {one.last: one for one in segments}

        def plan(space: Space) -> _Plan | None:
            if space.head.epoch != epoch or space.head.packed > until:
                return None
            written: dict[str, bytes] = {}
            replaced: set[str] = set()
            indexes: list[Extent | Index] = []
            left = dict(changed)
            for extent in space.indexes:
                index = space.index(extent.name)
                listed = list(index.segments)
                for at, (first, last, part) in enumerate(listed):
                    fresh = left.pop(last, None)
                    if fresh is not None and fresh.first == first:
                        listed[at] = first, last, new_name()
                        key = part_key(name, listed[at][2])
                        written[key] = encode_segment(key, fresh)
                        replaced.add(part_key(name, part))
                kept = _kept_names(index, named)
                if listed == list(index.segments) and kept == index.names:
                    indexes.append(extent)
                else:
                    indexes.append(Index(tuple(listed), index.lookup, kept))
                    replaced.add(part_key(name, extent.name))
            if left:
                return None  # Its segments have been replaced.
            made = self._planned(space, (), indexes, written)
            return made._replace(replaced=made.replaced | replaced)

        def swap(now: Moment, made: _Plan) -> Moment | None:
            if now.head.epoch != epoch or (now.sequence > until and not agrees()):
                return None
            head = now.head.changed(epoch=epoch + 1, state=made.named)
            return Moment(None, head, now.tail)

        return self._rename(name, plan, swap)

    def _planned(
        self,
        space: Space,
        older: Sequence[Extent],
        indexes: Sequence[Extent | Index],
        written: dict[str, bytes],
    ) -> _Plan:
        """The parts for these indexes, and the state that references them."""
        name, extents = space.name, list(older)
        last = space.head.packed
        for one in indexes:
            if isinstance(one, Index):
                last = max(last, one.segments[-1][1])
                extent = Extent(new_name(), _size(one))
                key = part_key(name, extent.name)
                written[key] = encode_index(key, one)
                one = extent
            extents.append(one)
        head = space.head
        if not extents:  # Nothing is packed.
            return _Plan(head.state, head.sweep, "", written, set())
        state = new_name()
        key = part_key(name, state)
        refs = space.refs_at(last).values()
        written[key] = encode_state(key, refs, extents)
        gone = {part_key(name, head.state)} if head.state else set()
        return _Plan(head.state, head.sweep, state, written, gone)

    def _rename(
        self,
        name: str,
        plan: Callable[[Space], _Plan | None],
        swap: Callable[[Moment, _Plan], Moment | None],
    ) -> bool:
        """Write parts, reference them in one swap, and remove those they replace."""
        made = self.ask(name, plan)
        if made is None:
            return False
        self._parts.set_many(made.written)
        fresh = False
        with self.turn(name) as backoff:
            while True:
                with self.looking(name, fresh=fresh) as space:
                    now = space.moment
                after = None
                if (now.head.state, now.head.sweep) == (made.state, made.sweep):
                    after = swap(now, made)
                if after is not None and self.swap(name, now, after):
                    break
                if fresh and after is None:
                    # It may have been written although the reply was negative: then they are
                    # referenced.
                    named = self.ask(name, Space.parts)
                    remove_parts(self._parts, made.written.keys() - named)
                    return False
                if fresh:
                    self.wait(name, backoff)
                fresh = True
        remove_parts(self._parts, made.replaced)
        return True

    def remove_orphans(self) -> None:
        """Remove the leftovers of killed writers, packers and collections."""
        found: dict[str, list[str]] = {}
        for key in self._parts.keys(PARTS):
            found.setdefault(key.removeprefix(PARTS).rpartition("/")[0], []).append(key)
        for name, keys in found.items():
            if doomed := set(keys) - self.ask(name, Space.parts):
                with self.turn(name) as backoff:
                    while True:
                        with self.looking(name) as space:
                            now = space.moment
                        head = now.head.changed(sweep=now.head.sweep + 1)
                        if self.swap(name, now, now._replace(head=head)):
                            break
                        self.wait(name, backoff)
                remove_parts(self._parts, doomed - self.ask(name, Space.parts))


def _size(index: Index) -> int:
    return len(index.lookup) + len(index.names) + 48 * len(index.segments)


def _kept_names(index: Index, named: set[ObjectId]) -> bytes:
    return b"".join(sorted(named.intersection(index.ids())))
