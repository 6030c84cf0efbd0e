"""Collection in an embedded store: marks, deletion, and giving room back."""

from __future__ import annotations

import os
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from ropewalk.store import _sqlite_packs as packs
from ropewalk.store._filesystem import Filesystem
from ropewalk.store._framing import Framed
from ropewalk.store._sqlite_entries import (
    ORDINAL_BITS,
    Entry,
    living_ids,
    mark_gone,
    prefix,
    read_entries,
)
from ropewalk.store._sqlite_index import Found, Moment, Row, read_condemned
from ropewalk.tree._objects import ObjectId

_REPACKED_AT_A_TIME = 4 * 1024 * 1024
_PAGES_AT_A_TIME = 2048
_FORGOTTEN = 3600.0  # Seconds after which a file that no pack names is taken for an orphan.


class Deleted(NamedTuple):
    """Objects that are gone, and files that nobody needs once that is committed."""

    ids: list[ObjectId]
    files: list[str]


class Thin(NamedTuple):
    """A pack of which less than half is alive."""

    number: int
    file: str | None
    living: list[Entry]


def condemn(moment: Moment, ids: Iterable[ObjectId], collection: int) -> None:
    """Mark objects for deletion by a collection, those that are there."""
    moment.marked = True
    moment.db.executemany(
        "INSERT OR REPLACE INTO condemned VALUES (?, ?)",
        sorted((id, collection) for id in moment.find(ids)),
    )


def revive(db: sqlite3.Connection, ids: Iterable[ObjectId]) -> None:
    """Take marks away."""
    db.executemany("DELETE FROM condemned WHERE id = ?", ((id,) for id in ids))


def revive_bases(moment: Moment) -> None:
    """Take the mark from whatever living objects are stored against."""
    marked = {id for (id,) in moment.db.execute("SELECT id FROM condemned")}
    if not marked:
        return
    bases: dict[ObjectId, ObjectId] = {}
    needed: set[ObjectId] = set()
    rows = moment.db.execute("SELECT entries, bases FROM log WHERE bases IS NOT NULL")
    for entries, listed in rows:
        for one in read_entries(entries, listed):
            if one.base is None:
                break  # Those with a base come first.
            if one.gone or one.base not in marked:
                continue
            if one.id in marked:
                bases[one.id] = one.base
            else:
                needed.add(one.base)
    waiting = list(needed)
    while waiting:
        base = bases.get(waiting.pop())
        if base is not None and base not in needed:
            needed.add(base)
            waiting.append(base)
    revive(moment.db, sorted(needed))


def replace_condemned(moment: Moment, ids: Sequence[ObjectId]) -> None:
    """Make room for new frames of objects that are condemned."""
    moment.flush()  # In a tail, each object is at most once.
    _drop(moment, moment.find(ids))
    revive(moment.db, ids)


def delete_objects(
    moment: Moment, disk: Filesystem, folder: Path, ids: Sequence[ObjectId], collection: int
) -> Deleted:
    """Delete what a collection condemned, and rewrite packs that are less than half alive then."""
    marked = {id for id, by in read_condemned(moment.db, ids).items() if by == collection}
    if not marked:
        return Deleted([], [])
    moment.flush()
    found = moment.find(id for id in ids if id in marked)
    numbers = _drop(moment, found)
    revive(moment.db, marked)
    thin = [one for number in numbers if (one := _thin(moment, number)) is not None]
    emptied = _repack(moment, disk, folder, thin)
    files = [one.file for one in emptied if one.file is not None]
    sizes = sum(_size_of(folder / file) for file in files)
    moment.db.execute("UPDATE facts SET files = max(files - ?, 0)", (sizes,))
    return Deleted([id for id in ids if id in found], files)


def remove_orphans(db: sqlite3.Connection, disk: Filesystem, folder: Path) -> None:
    """Remove old files that no pack names, left by writers that were killed.

    Inside a transaction, so that no pack can come to name one meanwhile.
    """
    if not folder.is_dir():
        return
    sizes: dict[str, int] = {}
    named = {file for (file,) in db.execute("SELECT file FROM log WHERE file IS NOT NULL")}
    with os.scandir(folder) as files:
        for file in files:
            about = file.stat()
            if file.name in named:
                sizes[file.name] = about.st_size
            elif time.time() - about.st_mtime > _FORGOTTEN:
                disk.discard([Path(file.path)])
    db.execute("UPDATE facts SET files = ?", (sum(sizes.values()),))


def give_back_pages(db: sqlite3.Connection) -> bool:
    """Make the file smaller by some of the free pages; whether there are more."""
    free: int = db.execute("PRAGMA freelist_count").fetchone()[0]
    db.execute(f"PRAGMA incremental_vacuum({_PAGES_AT_A_TIME})").fetchall()
    left: int = db.execute("PRAGMA freelist_count").fetchone()[0]
    return 0 < left < free


def _drop(moment: Moment, found: dict[ObjectId, Found]) -> list[int]:
    """Take objects out of their packs and out of the index; the packs' numbers."""
    places: dict[int, list[int]] = defaultdict(list)
    for one in found.values():
        places[one.number].append(one.place & (1 << ORDINAL_BITS) - 1)
    for number, ordinals in places.items():
        row = moment.row(number)
        _update(moment, row, mark_gone(row.entries or b"", ordinals))
    moment.db.executemany(
        "DELETE FROM objects WHERE prefix = ? AND place = ?",
        sorted((prefix(id), one.place) for id, one in found.items()),
    )
    return sorted(places)


def _update(moment: Moment, row: Row, entries: bytes) -> None:
    moment.db.execute("UPDATE log SET entries = ? WHERE number = ?", (entries, row.number))
    moment.changed(row._replace(entries=entries))


def _thin(moment: Moment, number: int) -> Thin | None:
    row = moment.row(number)
    entries = list(read_entries(row.entries, row.bases))
    living = [one for one in entries if not one.gone]
    alive, size = sum(one.length for one in living), sum(one.length for one in entries)
    if living and 2 * alive >= size:
        return None
    (file,) = moment.db.execute("SELECT file FROM log WHERE number = ?", (number,)).fetchone()
    return Thin(number, file, living)


def _repack(moment: Moment, disk: Filesystem, folder: Path, thin: Sequence[Thin]) -> list[Thin]:
    """Move what is alive in these packs into new ones; the packs that are empty now.

    Frames and marks stay as they are. A pack that cannot be read whole stays too.
    """
    emptied: list[Thin] = []
    batch: list[Framed] = []
    held = 0
    for one in thin:
        frames = _read_living(moment, folder, one)
        if frames is None:
            continue
        _empty(moment, one)
        emptied.append(one)
        batch += frames
        held += sum(len(framed.frame) for framed in frames)
        if held > _REPACKED_AT_A_TIME:
            _move(moment, disk, folder, batch, held)
            batch, held = [], 0
    _move(moment, disk, folder, batch, held)
    return emptied


def _read_living(moment: Moment, folder: Path, thin: Thin) -> list[Framed] | None:
    read = packs.Frames({}, set())
    packs.read_pack(moment.db, folder, thin.number, thin.living, read)
    frames = [Framed(one.id, read.frames[one.id], one.base, one.depth) for one in thin.living]
    sound = all(
        len(framed.frame) >= one.length for framed, one in zip(frames, thin.living, strict=True)
    )
    return frames if sound else None


def _empty(moment: Moment, thin: Thin) -> None:
    db = moment.db
    row = moment.row(thin.number)
    places = [
        (prefix(id), thin.number << ORDINAL_BITS | ordinal)
        for ordinal, id in living_ids(row.entries)
    ]
    db.executemany("DELETE FROM objects WHERE prefix = ? AND place = ?", sorted(places))
    # The last row stays, so that no number is given twice.
    if row.space is None and thin.number < moment.last:
        db.execute("DELETE FROM log WHERE number = ?", (thin.number,))
    else:
        db.execute(
            "UPDATE log SET entries = NULL, bases = NULL, file = NULL, data = NULL "
            "WHERE number = ?",
            (thin.number,),
        )
    moment.changed(row._replace(entries=None, bases=None))


def _move(
    moment: Moment, disk: Filesystem, folder: Path, frames: Sequence[Framed], size: int
) -> None:
    if not frames:
        return
    if size > packs.LARGE:
        ahead = packs.write_ahead(disk, folder, frames)
        columns = packs.add_file(moment.db, frames, ahead)
    else:
        columns = packs.pack_columns(frames)
    number = packs.insert_pack(moment.db, columns)
    moment.add(Row(number, None, None, None, columns.entries, columns.bases))
    moment.flush()


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
