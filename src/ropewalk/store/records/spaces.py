"""The spaces of a store of records: how they are read, and how each changes.

Parts are written before the swap that names them, and removed after the one that no longer does.
So a reader that misses a part reads the cell again: if that still names it, it is lost. Before
parts are removed that nobody names, the cell is swapped with a higher `sweep`. Who wrote parts
before that, and wants to name them now, sees it and writes them anew.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple, TypeVar

from ropewalk.errors import RopewalkError, Unavailable
from ropewalk.store.forking import freed_after_fork
from ropewalk.store.log import Append
from ropewalk.store.model import LeaseRecord
from ropewalk.store.record import GROUP, Place, sequence_of
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

_SPACES: Final = 256  # That are kept in memory.
_STRIPES: Final = 64
_CRC: Final = 4


class Overflow(NamedTuple):
    """The part of a large record that is not named yet."""

    name: str
    frame: bytes
    sweep: int


class _Plan(NamedTuple):
    """Parts that are to be named in the place of others."""

    state: str
    """Of the space as it was."""
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
        """`rewound` is called with a space that may have another past than was seen."""
        self._cells, self._parts, self._rewound = cells, parts, rewound
        self._busy_seconds, self._waits = busy_seconds, waits
        self._lock = freed_after_fork(threading.Lock())
        self._spaces: OrderedDict[str, Space] = OrderedDict()
        self._turns = [freed_after_fork(threading.RLock()) for _ in range(_STRIPES)]

    # Reading.

    @contextmanager
    def looking(self, name: str, *, fresh: bool = True) -> Iterator[Space]:
        """A space as it is now; if not `fresh`, as it was when it was last read, if ever."""
        space = self._space(name)
        raw, known = None, space.known
        if fresh := fresh or not space.looked:
            raw, known = self._read(name, space)
        with space.lock:
            if fresh:
                self._refresh(space, raw, known)
            yield space

    def ask(self, name: str, question: Callable[[Space], T], *, fresh: bool = True) -> T:
        """What a space says; it is read again if a part is missed."""
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
        # Some may just have begun, or have leases only.
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
        """The cell of a space, and whether it is known to have operations."""
        if space.known:
            return self._cells.get(space_key(name)), True
        found = self._cells.get_many([space_key(name), KNOWN + name])
        return found.get(space_key(name)), KNOWN + name in found

    def _refresh(self, space: Space, raw: bytes | None, known: bool) -> None:
        """See a space as its cell says that was read."""
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
            # An older one may have been read before another thread read a newer one.
            again = True
            raw, known = self._read(space.name, space)

    # Changing.

    @contextmanager
    def turn(self, name: str) -> Iterator[Backoff]:
        """Wait for other threads of this store object that change a space."""
        with self._turns[hash(name) % _STRIPES]:
            yield Backoff(self._busy_seconds, *self._waits)

    def wait(self, name: str, backoff: Backoff) -> None:
        """Let others go ahead who were faster; `Unavailable` if that takes too long."""
        if not backoff.wait():
            raise Unavailable(
                f"the space {name!r} was changed by others at every try for "
                f"{self._busy_seconds:g} seconds. Nothing was written; try again."
            )

    def swap(self, name: str, now: Moment, fresh: Moment) -> bool:
        """Change a space: the moment at which it happens. False if it is not as it was."""
        data = encode_space(name, fresh.head, fresh.tail)
        if not self._cells.swap(space_key(name), now.raw, data):
            return False
        space = self._space(name)
        with space.lock:
            if space.moment.raw == now.raw:
                with suppress(Gone, RopewalkError):  # Then whoever looks next reads it.
                    space.take(Moment(data, fresh.head, fresh.tail))
                    space.looked = True
        return True

    def create(self, name: str) -> None:
        """Make the cell of a space, unless it is there, so that a collection knows of it."""
        self.swap(name, Moment(None, EMPTY, []), Moment(None, EMPTY.changed(), []))

    def append(
        self,
        now: Moment,
        batch: Append,
        dictionary: int | None,
        frame: bytes,
        overflow: Overflow | None,
    ) -> bool:
        """Add a record, whose frame may be in an overflow part; False if others were faster."""
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
        """Note that a space has operations."""
        space = self._space(name)
        if not space.known:
            self._cells.swap(KNOWN + name, None, seal(KNOWN + name, None))
            space.known = True

    def put_overflow(
        self, name: str, frame: bytes, now: Moment, before: Overflow | None
    ) -> Overflow:
        """Write a large record that is named by the next swap, unless that was done before."""
        if before is not None and (before.frame, before.sweep) == (frame, now.head.sweep):
            return before
        made = Overflow(new_name(), frame, now.head.sweep)
        self._parts.set_many({part_key(name, made.name): frame})
        return made

    def change_leases(
        self, name: str, change: Callable[[dict[str, LeaseRecord], int], int | None]
    ) -> bool:
        """Change the leases of a space; False, with nothing changed, if `change` says None.

        It is given the leases and the last token, and says which is the last one then.
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
        """Raise the epoch of a space, so that nothing lands there that was decided before."""
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
        """Put a segment in the place of its records; False if somebody else did."""

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
                return None  # It may lean on what would go.
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
        """Swap segments for others, and raise the epoch; False if another collection did.

        `named` are the shared objects to which records up to number `until` lead. If there are
        later ones, `agrees` says whether the collection agrees with them.
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
                return None  # Its segments are other ones by now.
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
        """The parts for these indexes, and the state that names them."""
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
        """Write parts, name them in one swap, and remove those in whose place they are."""
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
                    # It may have happened although somebody said no: then they are named.
                    named = self.ask(name, Space.parts)
                    remove_parts(self._parts, made.written.keys() - named)
                    return False
                if fresh:
                    self.wait(name, backoff)
                fresh = True
        remove_parts(self._parts, made.replaced)
        return True

    def remove_orphans(self) -> None:
        """Remove what killed writers, packers and collections left."""
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
