"""Frames in an embedded store: rows of packs, files for large ones, and the index of objects."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.store._decide import Presence
from holdfast.store._disk import Disk
from holdfast.store._frames import parse_header
from holdfast.store._framing import Framed
from holdfast.store._packs import Entry, build_pack, seal_pack
from holdfast.store._records import Stored
from holdfast.tree._objects import Kind, ObjectId

LARGE = 256 * 1024
"""A pack of more bytes is a file: SQLite would write it twice, and read it slower."""

_AT_A_TIME = 256
_SIZES = (1, 4, 16, 64, _AT_A_TIME)
_REPACKED_AT_A_TIME = 4 * 1024 * 1024
_FORGOTTEN = 3600.0  # Seconds after which a file that no pack names is taken for an orphan.


class Ahead(NamedTuple):
    """A pack that was written to a file before the transaction that will name it."""

    path: Path
    size: int
    entries: Mapping[ObjectId, Entry]


class Found(NamedTuple):
    """Frames, and the files that should have held others."""

    frames: dict[ObjectId, bytes]
    gone: set[str]


class Deleted(NamedTuple):
    """Objects that are gone, and files that nobody needs once that is committed."""

    ids: list[ObjectId]
    files: list[str]


def read_presence(db: sqlite3.Connection, ids: Iterable[ObjectId]) -> dict[ObjectId, Presence]:
    """Depth and condemnation of objects, without those that are absent."""
    rows = _select(db, "id, depth, condemned", ids)
    return {id: Presence(depth, bool(condemned)) for id, depth, condemned in rows}


def read_frames(db: sqlite3.Connection, folder: Path, ids: Iterable[ObjectId]) -> Found:
    """Frames with everything that they are stored against. An empty one cannot be read."""
    found = Found({}, set())
    wanted = list(ids)
    while wanted:
        places: dict[int, list[tuple[ObjectId, int, int]]] = defaultdict(list)
        bases: set[ObjectId] = set()
        for id, pack, start, length, base in _select(db, "id, pack, start, length, base", wanted):
            places[pack].append((id, start, length))
            if base is not None:
                bases.add(base)
        for pack, inside in places.items():
            _read_pack(db, folder, pack, inside, found)
        wanted = [base for base in bases if base not in found.frames]
    return found


def scan_after(db: sqlite3.Connection, after: ObjectId, limit: int) -> list[Stored]:
    """Objects whose ids follow this one, in their order."""
    rows = db.execute(
        "SELECT id, kind, size, length, base, condemned FROM objects WHERE id > ? "
        "ORDER BY id LIMIT ?",
        (after, limit),
    )
    return [
        Stored(id, Kind(kind), size, length, base, bool(condemned))
        for id, kind, size, length, base, condemned in rows
    ]


def write_ahead(disk: Disk, folder: Path, frames: Iterable[Framed]) -> Ahead:
    """Put frames into a file of its own, which survives a power loss."""
    pack = build_pack(frames)
    path = folder / f"{os.urandom(16).hex()}.pack"
    try:
        if not folder.is_dir():  # Left out of a copy, because it was empty.
            disk.make_folder(folder)
            disk.sync_folder(folder.parent)
        disk.create(path, seal_pack(pack), sync=True)
        disk.sync_folder(folder)
    except BaseException:
        disk.discard([path])
        raise
    return Ahead(path, len(pack.data), {entry.id: entry for entry in pack.entries})


def add_frames(
    db: sqlite3.Connection,
    frames: Sequence[Framed],
    present: Mapping[ObjectId, Presence],
    ahead: Ahead | None,
) -> None:
    """Store what a commit decided to store, in the place of condemned frames too."""
    for framed in frames:
        if framed.id in present:
            _count_out(db, framed.id)
    # Who wrote ahead and then slept for long may find its file taken for an orphan.
    if ahead is not None and ahead.path.exists():
        _add_file(db, [one for one in frames if one.id in ahead.entries], ahead)
        frames = [one for one in frames if one.id not in ahead.entries]
    _add_row(db, frames)


def mark(db: sqlite3.Connection, ids: Iterable[ObjectId], collection: int) -> None:
    """Condemn objects by a collection, or take that back with 0."""
    db.executemany(
        "UPDATE objects SET condemned = ? WHERE id = ?", ((collection, id) for id in ids)
    )


def delete_objects(
    db: sqlite3.Connection, disk: Disk, folder: Path, ids: Sequence[ObjectId], collection: int
) -> Deleted:
    """Delete what a collection condemned, and rewrite packs that are less than half alive then."""
    places = {
        id: pack
        for id, pack, condemned in _select(db, "id, pack, condemned", ids)
        if condemned == collection
    }
    for id in places:
        _count_out(db, id)
    db.executemany("DELETE FROM objects WHERE id = ?", ((id,) for id in places))
    thin: dict[int, str | None] = {}
    for pack in set(places.values()):
        row = db.execute(
            "SELECT file FROM packs WHERE number = ? AND 2 * alive < size", (pack,)
        ).fetchone()
        if row is not None:
            thin[pack] = row[0]
    emptied = _repack(db, disk, folder, thin) if thin else []
    db.executemany("DELETE FROM packs WHERE number = ?", ((pack,) for pack in emptied))
    files = [file for pack in emptied if (file := thin[pack]) is not None]
    return Deleted([id for id in ids if id in places], files)


def remove_orphans(db: sqlite3.Connection, disk: Disk, folder: Path) -> None:
    """Remove old files that no pack names, left by writers that were killed.

    Inside a transaction, so that no pack can come to name one meanwhile.
    """
    if not folder.is_dir():
        return
    named = {file for (file,) in db.execute("SELECT file FROM packs WHERE file IS NOT NULL")}
    with os.scandir(folder) as files:
        for file in files:
            if file.name not in named and time.time() - file.stat().st_mtime > _FORGOTTEN:
                disk.discard([Path(file.path)])


def _select(db: sqlite3.Connection, columns: str, ids: Iterable[ObjectId]) -> Iterator[Any]:
    remaining = iter(ids)
    while chunk := list(islice(remaining, _AT_A_TIME)):
        size = next(size for size in _SIZES if size >= len(chunk))
        # Few different statements, so that each is prepared once.
        chunk += chunk[-1:] * (size - len(chunk))
        yield from db.execute(_query(columns, size), chunk)


@lru_cache
def _query(columns: str, size: int) -> str:
    return f"SELECT {columns} FROM objects WHERE id IN ({', '.join('?' * size)})"  # noqa: S608


def _read_pack(
    db: sqlite3.Connection,
    folder: Path,
    pack: int,
    inside: Sequence[tuple[ObjectId, int, int]],
    found: Found,
) -> None:
    row = db.execute("SELECT file, data FROM packs WHERE number = ?", (pack,)).fetchone()
    file, data = row or (None, None)
    if file is not None:
        try:
            _read_file(folder / file, inside, found.frames)
        except FileNotFoundError:
            found.gone.add(file)
            found.frames.update((id, b"") for id, _, _ in inside)
        return
    for id, start, length in inside:
        found.frames[id] = (data or b"")[start : start + length]


def _read_file(
    path: Path, inside: Iterable[tuple[ObjectId, int, int]], frames: dict[ObjectId, bytes]
) -> None:
    with open(path, "rb", buffering=0) as file:
        for id, start, length in sorted(inside, key=lambda place: place[1]):
            file.seek(start)
            frames[id] = file.read(length)


def _add_row(db: sqlite3.Connection, frames: Sequence[Framed]) -> None:
    if not frames:
        return
    pack = build_pack(frames)
    size = len(pack.data)
    added = db.execute(
        "INSERT INTO packs (size, alive, data) VALUES (?, ?, ?)", (size, size, pack.data)
    )
    _add_to_index(db, added.lastrowid, frames, pack.entries)


def _add_file(db: sqlite3.Connection, frames: Sequence[Framed], ahead: Ahead) -> None:
    entries = [ahead.entries[one.id] for one in frames]
    alive = sum(entry.length for entry in entries)
    added = db.execute(
        "INSERT INTO packs (size, alive, file) VALUES (?, ?, ?)",
        (ahead.size, alive, ahead.path.name),
    )
    _add_to_index(db, added.lastrowid, frames, entries)


def _add_to_index(
    db: sqlite3.Connection, pack: int | None, frames: Iterable[Framed], entries: Iterable[Entry]
) -> None:
    rows: list[tuple[Any, ...]] = []
    for framed, (id, start, length, depth) in zip(frames, entries, strict=True):
        header = parse_header(framed.frame)
        kind, size, base = int(header.kind), header.length, header.base
        rows.append((id, pack, start, length, depth, kind, size, 0, base))
    db.executemany("INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)


def _count_out(db: sqlite3.Connection, id: ObjectId) -> None:
    """An object's frame will no longer be read: its pack is less alive."""
    db.execute(
        "UPDATE packs SET alive = alive - (SELECT length FROM objects WHERE id = ?1) "
        "WHERE number = (SELECT pack FROM objects WHERE id = ?1)",
        (id,),
    )


def _repack(
    db: sqlite3.Connection, disk: Disk, folder: Path, thin: Mapping[int, str | None]
) -> list[int]:
    """Move what is alive in these packs into new ones; the packs that are empty now.

    Frames and marks stay as they are. A pack that cannot be read whole stays too.
    """
    emptied: list[int] = []
    batch: list[Framed] = []
    held = 0
    for pack, inside in _living(db, thin).items():
        found = Found({}, set())
        _read_pack(db, folder, pack, inside, found)
        if any(len(found.frames[id]) != length for id, _, length in inside):
            continue
        emptied.append(pack)
        batch += [Framed(id, frame, None, 0) for id, frame in found.frames.items()]
        held += sum(length for _, _, length in inside)
        if held > _REPACKED_AT_A_TIME:
            _move(db, disk, folder, batch, held)
            batch, held = [], 0
    _move(db, disk, folder, batch, held)
    return emptied


def _living(
    db: sqlite3.Connection, packs: Iterable[int]
) -> dict[int, list[tuple[ObjectId, int, int]]]:
    inside: dict[int, list[tuple[ObjectId, int, int]]] = {pack: [] for pack in packs}
    rows = db.execute(
        "SELECT pack, id, start, length FROM objects "
        "WHERE pack IN (SELECT value FROM json_each(?))",
        (json.dumps(list(inside)),),
    )
    for pack, id, start, length in rows:
        inside[pack].append((id, start, length))
    return inside


def _move(
    db: sqlite3.Connection, disk: Disk, folder: Path, frames: Sequence[Framed], size: int
) -> None:
    if not frames:
        return
    pack = build_pack(frames)
    file = data = None
    if size > LARGE:
        file = write_ahead(disk, folder, frames).path.name
    else:
        data = pack.data
    added = db.execute(
        "INSERT INTO packs (size, alive, file, data) VALUES (?, ?, ?, ?)", (size, size, file, data)
    )
    db.executemany(
        "UPDATE objects SET pack = ?, start = ? WHERE id = ?",
        ((added.lastrowid, entry.offset, entry.id) for entry in pack.entries),
    )
