"""The objects of a key-value store: one cell each, changed by compare-and-set.

A new cell bears the epoch of its commit, which may fail. In a later epoch it is in doubt, and
nobody can need it, unless a collection has settled it before. See design note 014.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from ropewalk.errors import FormatError, Unavailable
from ropewalk.store._decide import Presence, Reframe
from ropewalk.store._frames import frame_base, frame_depth, parse_header
from ropewalk.store._framing import Framed
from ropewalk.store._key_value_calls import Calls, Swap
from ropewalk.store._key_value_cells import (
    EPOCH,
    NEW,
    OBJECTS,
    Birth,
    Cell,
    born,
    damaged,
    decode_cell,
    encode_cell,
    object_key,
    read_epoch,
)
from ropewalk.store._order import Below
from ropewalk.store._reading import fetch_chains
from ropewalk.store._records import Stored
from ropewalk.store._turns import Patience
from ropewalk.tree.objects import ID_SIZE, ObjectId

_AT_A_TIME = 256
_LOOKS = 3
_BUSY_SECONDS = 30.0


class Raced(Exception):
    """Somebody else was faster; nothing has happened that anybody can see."""


class Objects:
    """The cells of one store. Safe to share between threads."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._unsettled: set[ObjectId] | None = None
        """What the last look at all objects found new; None if there was none."""

    # Reading.

    def frames(self, ids: Sequence[ObjectId]) -> dict[ObjectId, bytes]:
        """The frames of objects and of their bases, without those that are absent."""
        for _ in range(_LOOKS):
            found = fetch_chains(ids, self._frames)
            alone = [id for id, frame in found.items() if not _base_of(frame) <= found.keys()]
            if not alone:
                return found
            cells = self._cells(alone)
            if found == {**found, **_frames_in(cells)}:
                break
            # Written anew, whole, after it was read; then its base went.
        # No commit came to name what is new and has lost its base: it counts for nothing.
        left = {id for id, data in cells.items() if _birth(data)}
        return {id: frame for id, frame in found.items() if id not in left}

    def _frames(self, ids: Sequence[ObjectId]) -> dict[ObjectId, bytes]:
        return _frames_in(self._cells(ids))

    def presence(self, ids: Sequence[ObjectId], epoch: int) -> dict[ObjectId, Presence]:
        """Depth and condemnation of objects in an epoch, without those that are absent.

        What is in doubt counts as condemned: nobody can need it, and writing it
        again, whole, makes it alive.
        """
        return self._presences(self._cells(ids), epoch)

    def presence_now(self, ids: Sequence[ObjectId]) -> dict[ObjectId, Presence]:
        """The same, in the epoch that it is now."""
        keys = {object_key(id): id for id in ids}
        found = self._calls.get_many([EPOCH, *keys])
        epoch = read_epoch(found.pop(EPOCH, None))
        return self._presences({keys[key]: data for key, data in found.items()}, epoch)

    def _presences(self, cells: Mapping[ObjectId, bytes], epoch: int) -> dict[ObjectId, Presence]:
        found: dict[ObjectId, Presence] = {}
        for id, data in cells.items():
            cell = decode_cell(data)
            if cell is not None:
                needless = cell.collection is not None or cell.is_doubtful(epoch)
                with suppress(FormatError):  # What is no frame may be written again.
                    found[id] = Presence(frame_depth(cell.frame), needless)
        return found

    def scan(self, epoch: int) -> Iterator[Stored]:
        """Every object."""
        new: set[ObjectId] = set()
        for key, data in self._all():
            stored = _stored(key, data, epoch)
            if stored is not None:
                if _is_new(data):
                    new.add(stored.id)
                yield stored
        self._unsettled = new

    def examine(self) -> Iterator[tuple[str, str]]:
        """What stands where an object should, and is none."""
        for key, data in self._all():
            if _stored(key, data, 0) is None:
                yield key, str(damaged(key))

    def _all(self) -> Iterator[tuple[str, bytes]]:
        keys = self._calls.keys(OBJECTS)
        for start in range(0, len(keys), _AT_A_TIME):
            yield from self._calls.get_many(keys[start : start + _AT_A_TIME]).items()

    def _cells(self, ids: Sequence[ObjectId]) -> dict[ObjectId, bytes]:
        keys = {object_key(id): id for id in ids}
        return {keys[key]: data for key, data in self._calls.get_many(list(keys)).items()}

    # Writing.

    def put(self, frames: Sequence[Framed], epoch: int, below: Below) -> None:
        """Make objects alive that were not, for a commit in this epoch; the lowest come first.

        Raises `Reframe` for what is there by now, and is not to be replaced by a frame that
        needs another.
        """
        birth = born(epoch)
        waiting = {one.id: one for one in frames}
        while waiting:
            # A whole frame is good wherever it stands, so nobody need look what it replaces.
            whole = _whole_first(waiting, below)
            self._calls.set_many(_cells_of(whole, birth))
            for one in whole:
                del waiting[one.id]
            deltas = [one for one in waiting.values() if not _needed(one, below) & waiting.keys()]
            cells = _cells_of(deltas, birth)
            done = self._calls.swap_many([(key, None, cells[key]) for key in cells])
            if not all(done) or not (whole or deltas):
                raise Reframe(one.id for one in waiting.values() if one.base)
            for one in deltas:
                del waiting[one.id]

    def settle_epoch(self, epoch: int, is_still: Callable[[], bool]) -> None:
        """Settle what was written in this epoch, before it ends.

        What was here when it had not ended is seen by whoever ends it, and stays whole. So
        `is_still` is asked after a cell was read, and the cell must not have changed since.
        """
        if self._unsettled is None:
            for _ in self.scan(epoch):
                pass
        ids = sorted(self._unsettled or ())
        self._unsettled = None
        for start in range(0, len(ids), _AT_A_TIME):
            cells = self._cells(ids[start : start + _AT_A_TIME])
            if not is_still():
                return
            self._calls.swap_many(list(_settling(cells, epoch)))

    def settle(self, found: Sequence[Stored]) -> None:
        """Settle what was in doubt, if it is still as it was found."""
        births = {one.id: one.doubt for one in found}
        for start in range(0, len(found), _AT_A_TIME):
            ids = [one.id for one in found[start : start + _AT_A_TIME]]
            cells = {
                id: data for id, data in self._cells(ids).items() if _birth(data) == births[id]
            }
            self._calls.swap_many(list(_settling(cells, 0)))

    def change(
        self, ids: Sequence[ObjectId], change: Callable[[Cell], Cell | None]
    ) -> list[ObjectId]:
        """Change cells, each in one step; the ids of those that were changed.

        `change` says what a cell becomes: None removes it.
        """
        changed: set[ObjectId] = set()
        for start in range(0, len(ids), _AT_A_TIME):
            waiting = list(ids[start : start + _AT_A_TIME])
            patience = Patience(_BUSY_SECONDS, first=0.0005, last=0.02)
            while waiting:
                done, waiting = self._change_some(waiting, change)
                changed.update(done)
                if waiting and not patience.wait():
                    key = object_key(waiting[0])
                    raise Unavailable(f"{key!r} was changed by others at every try; try again")
        return [id for id in ids if id in changed]

    def _change_some(
        self, ids: Iterable[ObjectId], change: Callable[[Cell], Cell | None]
    ) -> tuple[list[ObjectId], list[ObjectId]]:
        """The ids of the cells that were changed, and of those that somebody else changed."""
        swaps: dict[ObjectId, Swap] = {}
        for id, data in self._cells(list(ids)).items():
            cell = decode_cell(data)
            after = cell if cell is None else change(cell)
            if after != cell:
                swaps[id] = object_key(id), data, None if after is None else encode_cell(after)
        done = dict(zip(swaps, self._calls.swap_many(list(swaps.values())), strict=True))
        return [id for id in swaps if done[id]], [id for id in swaps if not done[id]]


def _frames_in(cells: Mapping[ObjectId, bytes]) -> dict[ObjectId, bytes]:
    """The frames of cells; no bytes for what is none: who reads the object is told that."""
    decoded = {id: decode_cell(data) for id, data in cells.items()}
    return {id: b"" if cell is None else cell.frame for id, cell in decoded.items()}


def _base_of(frame: bytes) -> set[ObjectId]:
    """The object that a frame is stored against, if it is."""
    try:
        base = frame_base(frame)
    except FormatError:
        return set()
    return set() if base is None else {base}


def _needed(one: Framed, below: Below) -> set[ObjectId]:
    """What must be there before an object is."""
    needed = set(below.get(one.id, ()))
    if one.base is not None:
        needed.add(one.base)
    return needed


def _whole_first(waiting: Mapping[ObjectId, Framed], below: Below) -> list[Framed]:
    """The whole frames that wait for no other, or only for each other; in their order."""
    chosen: dict[ObjectId, Framed] = {}
    for one in waiting.values():
        if (
            one.base is None
            and not (below.get(one.id, frozenset()) & waiting.keys()) - chosen.keys()
        ):
            chosen[one.id] = one
    return list(chosen.values())


def _cells_of(frames: Iterable[Framed], birth: Birth) -> dict[str, bytes]:
    return {object_key(one.id): encode_cell(Cell(one.frame, birth=birth)) for one in frames}


def _is_new(data: bytes) -> bool:
    """Whether a cell is alive, and not settled."""
    return data[:1] == NEW


def _settling(cells: Mapping[ObjectId, bytes], epoch: int) -> Iterator[Swap]:
    """How cells are settled that live and were written in this epoch or later."""
    for id, data in cells.items():
        cell = decode_cell(data)
        if cell is not None and _is_new(data) and not cell.is_doubtful(epoch):
            yield object_key(id), data, encode_cell(Cell(cell.frame))


def _birth(data: bytes) -> bytes:
    """What tells a new cell from all others."""
    cell = decode_cell(data)
    return b"" if cell is None or cell.birth is None else cell.birth.nonce


def _stored(key: str, data: bytes, epoch: int) -> Stored | None:
    """What is said about a cell; None if it is none."""
    cell = decode_cell(data)
    try:
        id = bytes.fromhex(key.removeprefix(OBJECTS))
        if cell is None or len(id) != ID_SIZE:
            return None
        header = parse_header(cell.frame)
    except ValueError:  # Also a FormatError.
        return None
    condemned = cell.collection is not None
    doubt = _birth(data) if cell.is_doubtful(epoch) else b""
    return Stored(id, header.kind, header.length, len(cell.frame), header.base, condemned, doubt)
