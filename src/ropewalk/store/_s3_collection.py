"""Rewriting the packs of a bucket: what is deleted goes, and small packs become large ones.

A living frame is written into a new pack of the present epoch before the old pack is removed.
So every mark says the same of the new copy: one that is set later has a later epoch, and one
that was set earlier did not hold for the old copy either. Packs with condemned frames are left
alone: in a new pack these would be alive.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from struct import Struct
from typing import TYPE_CHECKING

from ropewalk.store._records import Stored
from ropewalk.store._s3_catalog import Catalog, State
from ropewalk.store._s3_cells import PACKS
from ropewalk.store._s3_index import Copy, Index
from ropewalk.store._s3_packs import Row, epoch_of, pack_name, seal, time_of
from ropewalk.tree.objects import ObjectId

if TYPE_CHECKING:
    from ropewalk.store._s3_bucket import Bucket

PACK_BYTES = 8 * 1024 * 1024
"""About the most bytes of frames in one pack."""

_SMALL_PACK = PACK_BYTES // 8
_DOUBT = Struct(">Q")
_FEW = 16  # So many small packs are left as they are.


def compact(bucket: Bucket, index: Index) -> None:
    """Remove packs in which nothing lives, rewrite those that are less than half alive, and
    put small ones together. The index must be fresh."""
    packs, catalog = index.packs(), index.catalog
    living = {name: _living(index, catalog, name, rows) for name, rows in packs.items()}
    settled = {name: rows for name, rows in living.items() if rows is not None}
    empty = [name for name, rows in settled.items() if not rows and packs[name]]
    thin = [name for name, rows in settled.items() if rows and _is_thin(rows, packs[name])]
    small = [name for name, rows in settled.items() if rows and _size(packs[name]) < _SMALL_PACK]
    if len(small) >= _FEW:
        thin = sorted({*thin, *small})
    rewritten = _rewrite(bucket, index, catalog, {name: settled[name] for name in thin})
    gone = [*empty, *rewritten]
    if gone:
        index.drop(gone)
        index.replace_files()
        bucket.delete([f"{PACKS}/{name}" for name in gone])


def _living(index: Index, catalog: Catalog, name: str, rows: Sequence[Row]) -> list[Row] | None:
    """The living rows of a pack; None if one is condemned: then nothing can be settled yet.

    A pack in doubt has none. It can go when each of its rows is deleted, or lives elsewhere.
    """
    epoch = epoch_of(name) or 0
    if catalog.doubts(name, epoch):
        left = [row for row in rows if catalog.mark(row.id).state(epoch) is not State.DEAD]
        return None if any(not _lives(index, row) for row in left) else []
    states = [(row, catalog.mark(row.id).state(epoch)) for row in rows]
    if any(state is State.CONDEMNED for _, state in states):
        return None
    return [row for row, state in states if state is State.ALIVE]


def _rewrite(
    bucket: Bucket, index: Index, catalog: Catalog, packs: dict[str, list[Row]]
) -> list[str]:
    """Write living rows into new packs; the names of the packs that are not needed any more."""
    done: list[str] = []
    for some in _groups(packs):
        chosen: dict[bytes, Copy] = {}
        for copy in (Copy(name, 0, row) for name in some for row in packs[name]):
            held = chosen.get(copy.row.id)
            if held is None or copy.row.depth < held.row.depth:
                chosen[copy.row.id] = copy
        # Listed behind the packs that it replaces: who lists in order misses neither.
        name = pack_name(catalog.epoch, max(map(time_of, some)))
        if _write(bucket, index, chosen.values(), name):
            done += some
    return done


def doubt_of(index: Index, copy: Copy, epoch: int) -> bytes:
    """What `scan` says of a copy that is in doubt, or is stored against one that is."""
    return _DOUBT.pack(epoch) if any(_doubted(index, copy)) else b""


def settle(bucket: Bucket, index: Index, found: Sequence[Stored]) -> None:
    """Write objects once more, into a pack of the epoch in which they were found in doubt.

    If another collection has begun since, that pack is in doubt itself.
    """
    moved: dict[ObjectId, Copy] = {}
    for one in found:
        best = index.best(one.id)
        if best is not None:
            moved.update((copy.row.id, copy) for copy in _doubted(index, best[0]))
    epoch = min(int(_DOUBT.unpack(one.doubt)[0]) for one in found)
    _move(bucket, index, moved.values(), epoch)


def _doubted(index: Index, copy: Copy | None) -> Iterator[Copy]:
    """A copy, and those that it is stored against, as far as their packs are in doubt."""
    while copy is not None:
        if index.catalog.doubts(copy.pack, copy.epoch):
            yield copy
        base = copy.row.base
        found = None if base is None else index.best(base, copy.row.depth)
        copy = None if found is None else found[0]


def _move(bucket: Bucket, index: Index, copies: Iterable[Copy], epoch: int) -> None:
    """Write frames once more, into packs of an epoch."""
    some: list[Copy] = []
    held = 0
    for copy in copies:
        if some and held + copy.row.length > PACK_BYTES:
            _write(bucket, index, some, pack_name(epoch))
            some, held = [], 0
        some.append(copy)
        held += copy.row.length
    if some:
        _write(bucket, index, some, pack_name(epoch))


def _write(bucket: Bucket, index: Index, copies: Collection[Copy], name: str) -> bool:
    """Write frames into a new pack; False if one is gone: another collection was faster."""
    frames = index.read(copies)
    if any(frame is None for frame in frames.values()):
        return False
    rows = _moved(copies)
    bucket.put(f"{PACKS}/{name}", seal([frames[row.id] or b"" for row in rows], rows))
    index.add(name, rows)
    return True


def _lives(index: Index, row: Row) -> bool:
    """Whether there is a living copy that does for this one, also as a base."""
    best = index.best(row.id, row.depth + 1)
    return best is not None and best[1] is State.ALIVE


def _groups(packs: dict[str, list[Row]]) -> Iterator[list[str]]:
    some: list[str] = []
    held = 0
    for name, rows in packs.items():
        size = _size(rows)
        if some and held + size > PACK_BYTES:
            yield some
            some, held = [], 0
        some.append(name)
        held += size
    if some:
        yield some


def _moved(copies: Iterable[Copy]) -> list[Row]:
    rows: list[Row] = []
    offset = 0
    for copy in copies:
        rows.append(copy.row._replace(offset=offset))
        offset += copy.row.length
    return rows


def _is_thin(living: Sequence[Row], rows: Sequence[Row]) -> bool:
    return 2 * _size(living) < _size(rows)


def _size(rows: Sequence[Row]) -> int:
    return sum(row.length for row in rows)
