"""The shared objects of a store of records: packs, and one cell that locates them.

A commit writes its new objects to a pack, and adds them to the cell by one swap. The newest rows
are in the cell itself, all others in indexes. An object not listed by the cell does not exist, so
no reader sees part of a commit, and the packs of a killed writer are garbage.

A collection marks unreferenced objects in the cell, and raises the epochs of all spaces: a commit
prepared before that can no longer land, and one prepared afterwards sees the marks. It then checks
again, and removes from the cell the objects that still have its mark. A writer that references a
marked object clears the mark. A pack is removed once the cell lists nothing in it, and its name is
never reused.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from struct import Struct
from typing import Final, NamedTuple, TypeVar

from ropewalk.errors import MissingObjects, Unavailable
from ropewalk.store.forking import freed_after_fork
from ropewalk.store.log import shared_frame
from ropewalk.store.model import Stored
from ropewalk.store.records.cells import (
    LARGEST,
    PACKS,
    SHARED,
    Cells,
    Extent,
    Gone,
    Parts,
    damaged,
    lost,
    merged,
    new_name,
    read_part,
    reading,
    remove_parts,
    seal,
    unseal,
)
from ropewalk.store.retry import Backoff
from ropewalk.tree.objects import ID_SIZE, Kind, Object, ObjectId

T = TypeVar("T")

_INLINE: Final = 16 * 1024
"""The maximum bytes of rows in the cell."""
_ROW: Final = Struct(f">{ID_SIZE}s8sIIBI")
_KEPT: Final = 64


class Spot(NamedTuple):
    """The location of an object."""

    id: ObjectId
    pack: bytes
    offset: int
    size: int
    """The size of its frame."""
    kind: int
    length: int
    """The size of its payload."""


class Cell(NamedTuple):
    """The content of the cell."""

    raw: bytes | None
    revision: int
    sweep: int
    """Raised before unreferenced packs are removed: earlier writers then put theirs again."""
    round: int
    """The last collection that marked anything."""
    marks: Mapping[ObjectId, int]
    """Unreferenced objects, with the collection that marked them."""
    indexes: tuple[Extent, ...]
    rows: bytes
    """The newest rows, in order of arrival."""


class SharedObjects:
    """The shared objects of one store object. Safe to share between threads."""

    def __init__(
        self,
        cells: Cells,
        parts: Parts,
        pack_bytes: int,
        busy_seconds: float,
        waits: tuple[float, float],
    ) -> None:
        self._cells, self._parts = cells, parts
        self._pack_bytes = pack_bytes
        self._busy_seconds, self._waits = busy_seconds, waits
        self._turn = freed_after_fork(threading.RLock())
        self._cell: Cell | None = None
        self._newest: tuple[bytes, dict[ObjectId, Spot]] = b"", {}
        self._opened: dict[str, bytes] = {}

    # Reading.

    def create(self) -> None:
        """Create the cell if it is absent."""
        cell = Cell(None, 1, 0, 0, {}, (), b"")
        self._cells.swap(SHARED, None, _encode(cell))

    def frames(self, ids: Sequence[ObjectId]) -> dict[ObjectId, bytes]:
        """The frames of objects, without missing ones."""

        def question(cell: Cell) -> dict[ObjectId, bytes]:
            packs: dict[bytes, list[Spot]] = {}
            for spot in self._find(cell, ids).values():
                packs.setdefault(spot.pack, []).append(spot)
            found: dict[ObjectId, bytes] = {}
            for pack, spots in packs.items():
                places = [(one.offset, one.size) for one in spots]
                pieces = self._parts.pieces(_pack_key(pack), places)
                if pieces is None:
                    raise Gone(_pack_key(pack))
                found.update(zip([one.id for one in spots], pieces, strict=True))
            return found

        known = self._cell
        if known is not None:  # Objects found once usually still exist.
            with suppress(Gone):
                found = question(known)
                if len(found) == len(set(ids)):
                    return found
        return self._ask(question)

    def present(self, ids: Iterable[ObjectId]) -> set[ObjectId]:
        """Those of the ids that exist and that no collection has marked."""

        def question(cell: Cell) -> set[ObjectId]:
            return self._find(cell, ids).keys() - cell.marks.keys()

        return self._ask(question)

    def leading(self, ids: Iterable[ObjectId]) -> set[ObjectId]:
        """Those of the objects that may have links: all but parts of texts."""

        def question(cell: Cell) -> set[ObjectId]:
            return {one.id for one in self._find(cell, ids).values() if one.kind != Kind.CHUNK}

        return self._ask(question)

    def scan(self) -> Iterator[Stored]:
        """Every object."""
        for one in self._ask(self._all).values():
            yield Stored(one.id, Kind(one.kind), one.length, one.size)

    def missing_parts(self) -> list[str]:
        """The keys of listed parts that are missing."""

        def question(cell: Cell) -> list[str]:
            return sorted(self._named(cell).difference(self._parts.keys(PACKS)))

        return question(self._now()) and self._ask(question)

    def _now(self) -> Cell:
        """The current cell."""
        raw = self._cells.get(SHARED)
        if raw is None:
            raise lost(SHARED)
        known = self._cell
        if known is None or known.raw != raw:
            known = self._cell = _decode(raw)
        return known

    def _ask(self, question: Callable[[Cell], T]) -> T:
        """Evaluate the cell, reading it again if a part is missing."""
        missed = ""
        while True:
            cell = self._now()
            try:
                return question(cell)
            except Gone as gone:
                if gone.key == missed:
                    raise lost(missed) from None
                missed = gone.key

    def _find(self, cell: Cell, ids: Iterable[ObjectId]) -> dict[ObjectId, Spot]:
        rows, newest = self._newest
        if rows is not cell.rows:
            newest = {one.id: one for one in _spots(cell.rows)}
            self._newest = cell.rows, newest
        found: dict[ObjectId, Spot] = {}
        for id in ids:
            spot = newest.get(id)
            for extent in reversed(cell.indexes if spot is None else ()):
                spot = _search(self._index(extent.name), id)
                if spot is not None:
                    break
            if spot is not None:
                found[id] = spot
        return found

    def _all(self, cell: Cell) -> dict[ObjectId, Spot]:
        indexes = (_spots(self._index(extent.name)) for extent in cell.indexes)
        return {one.id: one for one in chain(*indexes, _spots(cell.rows))}

    def _index(self, name: str) -> bytes:
        found = self._opened.get(name)
        if found is None:
            key = PACKS + name
            found = unseal(key, read_part(self._parts, key))
            if not isinstance(found, bytes) or len(found) % _ROW.size:
                raise damaged(key)
            if len(self._opened) >= _KEPT:
                self._opened.clear()
            self._opened[name] = found
        return found

    def _named(self, cell: Cell) -> set[str]:
        """The keys of all listed parts."""
        packs = {_pack_key(one.pack) for one in self._all(cell).values()}
        return packs | {PACKS + one.name for one in cell.indexes}

    # Writing.

    def keep(self, objects: Mapping[ObjectId, Object], needed: Iterable[ObjectId]) -> None:
        """Store missing objects; raises `MissingObjects` for needs that are absent."""
        others = set(needed) - objects.keys()
        put: tuple[int, set[ObjectId], bytes] = -1, set(), b""

        def change(cell: Cell) -> Cell | None:
            nonlocal put
            there = self._find(cell, others.union(objects))
            if gone := others - (there.keys() - cell.marks.keys()):
                raise MissingObjects(sorted(gone))
            absent = objects.keys() - there.keys()
            marks = {id: at for id, at in cell.marks.items() if id not in objects}
            if not absent:
                return None if len(marks) == len(cell.marks) else cell._replace(marks=marks)
            if put[0] != cell.sweep or not absent <= put[1]:
                put = cell.sweep, absent, self._put([objects[id] for id in absent])
            return self._with_rows(cell._replace(marks=marks), put[2])

        self._change(change)

    def mark(self, ids: Iterable[ObjectId]) -> int:
        """Mark unreferenced objects, replacing all earlier marks; returns the round."""

        def change(cell: Cell) -> Cell:
            round = cell.round + 1
            return cell._replace(round=round, marks=dict.fromkeys(ids, round))

        return self._change(change).round

    def drop(self, ids: set[ObjectId], round: int) -> dict[ObjectId, int]:
        """Remove objects that still have the mark of a round, and clear the other marks; returns
        sizes.

        Packs of which less than half is left are rewritten.
        """
        dropped: dict[ObjectId, Spot] = {}
        packs: set[bytes] = set()

        def change(cell: Cell) -> Cell:
            nonlocal dropped, packs
            rows = self._all(cell)
            doomed = {id for id, at in cell.marks.items() if at == round} & ids & rows.keys()
            left = {id: one for id, one in rows.items() if id not in doomed}
            self._move_thin(rows, left)
            dropped = {id: rows[id] for id in doomed}
            packs = {one.pack for one in rows.values()} - {one.pack for one in left.values()}
            marks = {id: at for id, at in cell.marks.items() if at != round}
            return (
                self._rewritten(cell._replace(marks=marks), left)
                if doomed
                else cell._replace(marks=marks)
            )

        self._change(change)
        remove_parts(self._parts, map(_pack_key, packs))
        return {id: one.size for id, one in dropped.items()}

    def discard(self, ids: Iterable[ObjectId]) -> None:
        """Remove objects, whether or not they are referenced."""
        doomed = set(ids)

        def change(cell: Cell) -> Cell:
            left = {id: one for id, one in self._all(cell).items() if id not in doomed}
            return self._rewritten(cell, left)

        self._change(change)

    def remove_orphans(self) -> None:
        """Remove the leftovers of killed writers."""
        doomed = set(self._parts.keys(PACKS))
        if doomed := doomed - self._ask(self._named):
            self._change(lambda cell: cell._replace(sweep=cell.sweep + 1))
            remove_parts(self._parts, doomed - self._ask(self._named))

    def _change(self, change: Callable[[Cell], Cell | None]) -> Cell:
        """Change the cell in one step; remove the indexes it no longer lists."""
        with self._turn:
            backoff = Backoff(self._busy_seconds, *self._waits)
            while True:
                cell, fresh = self._ask(lambda cell: (cell, change(cell)))
                if fresh is None:
                    return cell
                raw = _encode(fresh._replace(revision=cell.revision + 1))
                if self._cells.swap(SHARED, cell.raw, raw):
                    remove_parts(self._parts, _index_keys(cell) - _index_keys(fresh))
                    return fresh
                # It may have been written although the reply was negative: then they are listed.
                named = _index_keys(cell) | _index_keys(self._now())
                remove_parts(self._parts, _index_keys(fresh) - named)
                if not backoff.wait():
                    raise Unavailable(
                        "the shared objects were changed by others at every try for "
                        f"{self._busy_seconds:g} seconds. Nothing was written; try again."
                    )

    def _put(self, objects: Sequence[Object]) -> bytes:
        """Write objects in packs, to be listed later; returns their rows."""
        rows: list[bytes] = []
        packs: dict[str, bytes] = {}
        frames: list[bytes] = []
        name, held = bytes.fromhex(new_name()), 0
        for one in objects:
            frame = shared_frame(one)
            if frames and held + len(frame) > self._pack_bytes:
                packs[_pack_key(name)] = b"".join(frames)
                name, held, frames = bytes.fromhex(new_name()), 0, []
            rows.append(_ROW.pack(one.id, name, held, len(frame), one.kind, len(one.payload)))
            frames.append(frame)
            held += len(frame)
        packs[_pack_key(name)] = b"".join(frames)
        self._parts.set_many(packs)
        return b"".join(rows)

    def _with_rows(self, cell: Cell, rows: bytes) -> Cell:
        rows = cell.rows + rows
        if len(rows) <= _INLINE:
            return cell._replace(rows=rows)
        count = merged(cell.indexes, len(rows))
        kept = cell.indexes[: len(cell.indexes) - count]
        joined = [self._index(one.name) for one in cell.indexes[len(kept) :]]
        spots = {one.id: one for one in _spots(b"".join([*joined, rows]))}
        return cell._replace(indexes=(*kept, *self._write_indexes(spots)), rows=b"")

    def _write_indexes(self, spots: Mapping[ObjectId, Spot]) -> list[Extent]:
        each = LARGEST // _ROW.size
        listed = [_ROW.pack(*spots[id]) for id in sorted(spots)]
        made: list[Extent] = []
        written: dict[str, bytes] = {}
        for start in range(0, len(listed), each):
            rows = b"".join(listed[start : start + each])
            made.append(Extent(new_name(), len(rows)))
            written[PACKS + made[-1].name] = seal(PACKS + made[-1].name, rows)
        self._parts.set_many(written)
        return made

    def _rewritten(self, cell: Cell, left: Mapping[ObjectId, Spot]) -> Cell:
        """The cell with exactly these objects."""
        return cell._replace(indexes=tuple(self._write_indexes(left)), rows=b"")

    def _move_thin(self, rows: Mapping[ObjectId, Spot], left: dict[ObjectId, Spot]) -> None:
        """Move the remaining objects of packs that are less than half full to other packs."""
        sizes: dict[bytes, int] = {}
        living: dict[bytes, list[Spot]] = {}
        for id, one in rows.items():
            sizes[one.pack] = max(sizes.get(one.pack, 0), one.offset + one.size)
            if id in left:
                living.setdefault(one.pack, []).append(one)
        for pack, spots in living.items():
            if 2 * sum([one.size for one in spots]) < sizes[pack]:
                left.update(self._moved(pack, spots))

    def _moved(self, pack: bytes, spots: Sequence[Spot]) -> dict[ObjectId, Spot]:
        """Write objects to a pack of their own."""
        frames = self._parts.pieces(_pack_key(pack), [(one.offset, one.size) for one in spots])
        if frames is None:
            raise Gone(_pack_key(pack))
        name, held = bytes.fromhex(new_name()), 0
        moved: dict[ObjectId, Spot] = {}
        for one in spots:
            moved[one.id] = one._replace(pack=name, offset=held)
            held += one.size
        self._parts.set_many({_pack_key(name): b"".join(frames)})
        return moved


def _pack_key(pack: bytes) -> str:
    return PACKS + pack.hex()


def _index_keys(cell: Cell) -> set[str]:
    return {PACKS + one.name for one in cell.indexes}


def _spots(rows: bytes) -> list[Spot]:
    return [Spot(*one) for one in _ROW.iter_unpack(rows)]


def _search(rows: bytes, id: ObjectId) -> Spot | None:
    """Find an object in sorted rows."""
    size = _ROW.size
    at = bisect_left(
        range(len(rows) // size), id, key=lambda at: rows[at * size : at * size + ID_SIZE]
    )
    found = rows[at * size : at * size + size]
    return Spot(*_ROW.unpack(found)) if found.startswith(id) else None


def _encode(cell: Cell) -> bytes:
    rounds: dict[int, list[ObjectId]] = {}
    for id, at in cell.marks.items():
        rounds.setdefault(at, []).append(id)
    marks = [[at, b"".join(sorted(ids))] for at, ids in rounds.items()]
    indexes = [list(one) for one in cell.indexes]
    return seal(SHARED, [cell.revision, cell.sweep, cell.round, marks, indexes, cell.rows])


def _decode(raw: bytes) -> Cell:
    with reading(SHARED):
        revision, sweep, round, rounds, listed, rows = unseal(SHARED, raw)
        marks = {
            ids[at : at + ID_SIZE]: int(number)
            for number, ids in rounds
            for at in range(0, len(ids), ID_SIZE)
        }
        indexes = tuple([Extent(str(name), int(size)) for name, size in listed])
        if len(rows) % _ROW.size:
            raise damaged(SHARED)
        return Cell(raw, int(revision), int(sweep), int(round), marks, indexes, bytes(rows))
