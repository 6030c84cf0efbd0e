"""The objects of a key-value store: one cell each, changed by compare-and-set.

A frame that is stored against another object is only good while that one is there. No
key-value store can look at two keys in one step, so such a frame is first written as
pending: nobody can read it or build on it, but a collection sees what it is stored against,
and spares that. If its base is still alive after that, it is confirmed. See design note 008.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from holdfast.errors import FormatError, Unavailable
from holdfast.store._decide import Presence, Reframe
from holdfast.store._frames import frame_base, frame_depth, parse_header
from holdfast.store._framing import Framed
from holdfast.store._key_value_calls import Calls, Swap
from holdfast.store._key_value_cells import (
    NONCE,
    OBJECTS,
    Cell,
    damaged,
    decode_cell,
    encode_cell,
    object_key,
)
from holdfast.store._reading import fetch_chains
from holdfast.store._records import Stored
from holdfast.store._turns import Patience
from holdfast.tree._objects import ID_SIZE, ObjectId

_AT_A_TIME = 256
_LOOKS = 3
_BUSY_SECONDS = 30.0


class Raced(Exception):
    """Somebody else was faster; nothing has happened that anybody can see."""


class Objects:
    """The cells of one store. Safe to share between threads."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    # Reading.

    def frames(self, ids: Sequence[ObjectId]) -> dict[ObjectId, bytes]:
        """The frames of objects and of their bases, without those that are absent or pending."""
        for _ in range(_LOOKS):
            found = fetch_chains(ids, self._frames)
            alone = [id for id, frame in found.items() if not _base_of(frame) <= found.keys()]
            if not alone or found == {**found, **self._frames(alone)}:
                break
            # Written anew, whole, after it was read; then its base went.
        return found

    def _frames(self, ids: Sequence[ObjectId]) -> dict[ObjectId, bytes]:
        found: dict[ObjectId, bytes] = {}
        for id, data in self._cells(ids).items():
            cell = decode_cell(data)
            if cell is None:
                found[id] = b""  # No cell, so no frame: who reads the object is told that.
            elif cell.pending is None:
                found[id] = cell.frame
        return found

    def presence(self, ids: Sequence[ObjectId]) -> dict[ObjectId, Presence]:
        """Depth and condemnation of objects, without those that are absent.

        What is pending counts as condemned: nobody can need it, and writing it again, whole,
        makes it alive.
        """
        found: dict[ObjectId, Presence] = {}
        for id, data in self._cells(ids).items():
            cell = decode_cell(data)
            if cell is not None:
                alive = cell.pending is None and cell.collection is None
                with suppress(FormatError):  # What is no frame may be written again.
                    found[id] = Presence(frame_depth(cell.frame), not alive)
        return found

    def scan(self) -> Iterator[Stored]:
        """Every object, pending ones too: what they are stored against is needed."""
        for key, data in self._all():
            stored = _stored(key, data)
            if stored is not None:
                yield stored

    def examine(self) -> Iterator[tuple[str, str]]:
        """What stands where an object should, and is none."""
        for key, data in self._all():
            if _stored(key, data) is None:
                yield key, str(damaged(key))

    def _all(self) -> Iterator[tuple[str, bytes]]:
        keys = self._calls.keys(OBJECTS)
        for start in range(0, len(keys), _AT_A_TIME):
            yield from self._calls.get_many(keys[start : start + _AT_A_TIME]).items()

    def _cells(self, ids: Sequence[ObjectId]) -> dict[ObjectId, bytes]:
        keys = {object_key(id): id for id in ids}
        return {keys[key]: data for key, data in self._calls.get_many(list(keys)).items()}

    # Writing.

    def put(self, frames: Sequence[Framed]) -> None:
        """Make objects alive that were not.

        Raises `Reframe` for what cannot be stored against its base, and `Raced` if somebody
        changed a cell meanwhile.
        """
        # A whole frame is good wherever it stands, so nobody need look what it replaces.
        self._calls.set_many(
            {object_key(one.id): encode_cell(Cell(one.frame)) for one in frames if not one.base}
        )
        deltas = [one for one in frames if one.base]
        if deltas:
            pending = self._propose(deltas)
            self._expect_bases(deltas)
            self._confirm(deltas, pending)

    def _propose(self, deltas: Sequence[Framed]) -> dict[ObjectId, bytes]:
        """Write frames as pending. The nonce tells them from those of any other writer."""
        nonce = os.urandom(NONCE)
        pending = {one.id: encode_cell(Cell(one.frame, pending=nonce)) for one in deltas}
        done = self._calls.swap_many([(object_key(id), None, pending[id]) for id in pending])
        if not all(done):
            # Somebody writes the same, or was killed at it. A whole frame takes its place.
            raise Reframe(one.id for one in deltas)
        return pending

    def _expect_bases(self, deltas: Sequence[Framed]) -> None:
        """Look at the bases, now that a collection can see that they are needed."""
        ours = {one.id for one in deltas}
        outside = [one for one in deltas if one.base not in ours]
        found = self.presence(list({one.base for one in outside if one.base}))
        for one in outside:
            base = found.get(one.base) if one.base else None
            if base is None or base.condemned or base.depth >= one.depth:
                raise Reframe(ours)

    def _confirm(self, deltas: Sequence[Framed], pending: Mapping[ObjectId, bytes]) -> None:
        """Make pending frames alive, none before the one that it is stored against."""
        for depth in sorted({one.depth for one in deltas}):
            swaps: list[Swap] = [
                (object_key(one.id), pending[one.id], encode_cell(Cell(one.frame)))
                for one in deltas
                if one.depth == depth
            ]
            if not all(self._calls.swap_many(swaps)):
                raise Raced

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


def _base_of(frame: bytes) -> set[ObjectId]:
    """The object that a frame is stored against, if it is."""
    try:
        base = frame_base(frame)
    except FormatError:
        return set()
    return set() if base is None else {base}


def _stored(key: str, data: bytes) -> Stored | None:
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
    return Stored(id, header.kind, header.length, len(cell.frame), header.base, condemned)
