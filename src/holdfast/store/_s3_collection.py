"""Rewriting the packs of a bucket: what is deleted goes, and small packs become large ones.

A living frame is written into a new pack of the present epoch before the old pack is removed.
So every mark says the same of the new copy: one that is set later has a later epoch, and one
that was set earlier did not hold for the old copy either. Packs with condemned frames are left
alone: in a new pack these would be alive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from holdfast.store._s3_catalog import Catalog, State
from holdfast.store._s3_cells import PACKS
from holdfast.store._s3_index import Copy, Index
from holdfast.store._s3_packs import Row, epoch_of, pack_name, seal, time_of

if TYPE_CHECKING:
    from holdfast.store._s3_bucket import Bucket

PACK_BYTES = 8 * 1024 * 1024
"""About the most bytes of frames in one pack."""

_SMALL_PACK = PACK_BYTES // 8
_FEW = 16  # So many small packs are left as they are.


def compact(bucket: Bucket, index: Index) -> None:
    """Remove packs in which nothing lives, rewrite those that are less than half alive, and
    put small ones together. The index must be fresh."""
    packs, catalog = index.packs(), index.catalog
    living = {name: _living(catalog, name, rows) for name, rows in packs.items()}
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


def _living(catalog: Catalog, name: str, rows: Sequence[Row]) -> list[Row] | None:
    """The living rows of a pack; None if one is condemned: then nothing can be settled yet."""
    epoch = epoch_of(name) or 0
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
        frames = index.read(chosen.values())
        if any(frame is None for frame in frames.values()):
            continue  # Another collection was faster.
        # Listed behind the packs that it replaces: who lists in order misses neither.
        name = pack_name(catalog.epoch, max(map(time_of, some)))
        rows = _moved(chosen.values())
        data = [frames[row.id] or b"" for row in rows]
        bucket.put(f"{PACKS}/{name}", seal(data, rows))
        index.add(name, rows)
        done += some
    return done


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
