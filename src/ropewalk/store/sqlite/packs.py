"""Packs of an embedded store: shared objects, in rows and, if they are large, in files."""

from __future__ import annotations

import os
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from ropewalk.errors import Corrupt, FormatError
from ropewalk.store.folder import Filesystem
from ropewalk.store.log import shared_frame
from ropewalk.store.lookup import shared_object
from ropewalk.store.model import Stored
from ropewalk.tree.nodes import links
from ropewalk.tree.objects import Kind, Object, ObjectId

LARGE: Final = 256 * 1024
"""A pack of more bytes is a file: SQLite would write it twice, and read it slower."""
FOLDER: Final = "packs"

_AT_A_TIME: Final = 256
_FORGOTTEN: Final = 3600.0  # Seconds after which a file that no pack names is an orphan.


class Pack(NamedTuple):
    """Frames of shared objects, before the transaction that will name them."""

    objects: Sequence[Object]
    frames: Sequence[bytes]
    file: Path | None
    """Where they are already, if they are many."""

    @property
    def size(self) -> int:
        """Bytes of all frames."""
        return sum(map(len, self.frames))


def prepare(objects: Iterable[Object]) -> Pack:
    """The frames of objects, of which each has its kind in front."""
    listed = list(objects)
    frames = [shared_frame(one) for one in listed]
    return Pack(listed, frames, None)


def write_ahead(disk: Filesystem, folder: Path, pack: Pack) -> Pack:
    """Put a pack into a file of its own, which survives a power loss."""
    path = folder / f"{os.urandom(16).hex()}.pack"
    try:
        if not folder.is_dir():  # Left out of a copy, because it was empty.
            disk.make_folder(folder)
            disk.sync_folder(folder.parent)
        disk.create(path, b"".join(pack.frames), sync=True)
        disk.sync_folder(folder)
    except BaseException:
        disk.discard([path])
        raise
    return pack._replace(file=path)


def insert(db: sqlite3.Connection, pack: Pack, absent: set[ObjectId]) -> None:
    """Add the absent objects of a pack. Inside a transaction.

    A writer may have slept so long that its file was taken for an orphan's.
    """
    if pack.file is None or not pack.file.exists():
        kept = [(one, frame) for one, frame in zip(pack.objects, pack.frames, strict=True)
                if one.id in absent]  # fmt: skip
        data: bytes | None = b"".join([frame for _, frame in kept])
        size, name = len(data or b""), None
    else:
        kept = list(zip(pack.objects, pack.frames, strict=True))
        data, size, name = None, pack.size, pack.file.name
    number = db.execute(
        "INSERT INTO packs (size, file, data) VALUES (?, ?, ?)", (size, name, data)
    ).lastrowid
    rows: list[tuple[ObjectId, int | None, int, int, int, int, bool]] = []
    start = 0
    for one, frame in kept:
        if one.id in absent:
            leads = bool(_links(one))
            rows.append((one.id, number, start, len(frame), len(one.payload), one.kind, leads))
        start += len(frame)
    db.executemany("INSERT INTO shared VALUES (?, ?, ?, ?, ?, ?, ?)", sorted(rows))


def present(db: sqlite3.Connection, ids: Iterable[ObjectId]) -> set[ObjectId]:
    """Those of the ids that are shared objects."""
    found: set[ObjectId] = set()
    for some in batched(ids):
        marks = ", ".join("?" * len(some))
        found.update(id for (id,) in db.execute(
            f"SELECT id FROM shared WHERE id IN ({marks})", some  # noqa: S608
        ))  # fmt: skip
    return found


def leading(db: sqlite3.Connection, ids: Iterable[ObjectId]) -> set[ObjectId]:
    """Those of some shared objects that lead to others."""
    found: set[ObjectId] = set()
    for some in batched(ids):
        marks = ", ".join("?" * len(some))
        found.update(id for (id,) in db.execute(
            f"SELECT id FROM shared WHERE id IN ({marks}) AND leads", some  # noqa: S608
        ))  # fmt: skip
    return found


class Read(NamedTuple):
    """Frames, and the files that should have held others."""

    frames: dict[ObjectId, bytes]
    gone: set[str]


def read(db: sqlite3.Connection, folder: Path, ids: Iterable[ObjectId]) -> Read:
    """The frames of shared objects, without absent ones; an empty one cannot be read."""
    places: defaultdict[int, list[tuple[int, int, ObjectId]]] = defaultdict(list)
    for some in batched(ids):
        marks = ", ".join("?" * len(some))
        for id, pack, start, size in db.execute(
            f"SELECT id, pack, start, size FROM shared WHERE id IN ({marks})",  # noqa: S608
            some,
        ):
            places[pack].append((start, size, id))
    found = Read({}, set())
    for number, parts in places.items():
        row = db.execute(
            "SELECT CAST(file AS TEXT), CAST(data AS BLOB), size FROM packs WHERE number = ?",
            (number,),
        ).fetchone()
        name, data, whole = row or (None, b"", 0)
        if name is None:
            for start, size, id in parts:
                found.frames[id] = (data or b"")[start : start + size]
            continue
        try:
            with open(folder / name, "rb", buffering=0) as file:
                for start, size, id in sorted(parts):
                    if not 0 <= start <= start + size <= whole:  # Its row is damaged.
                        found.frames[id] = b""
                        continue
                    file.seek(start)
                    found.frames[id] = file.read(size)
        except FileNotFoundError:
            found.gone.add(name)
            found.frames.update((id, b"") for _, _, id in parts)
    return found


def scan(db: sqlite3.Connection, after: ObjectId) -> list[Stored]:
    """Some shared objects, in the order of their ids."""
    rows = db.execute(
        "SELECT id, kind, length, size FROM shared WHERE id > ? ORDER BY id LIMIT 1000", (after,)
    )
    try:
        return [Stored(id, Kind(kind), length, size) for id, kind, length, size in rows]
    except ValueError as error:
        raise Corrupt(f"a row of the list of shared objects is damaged: {error}") from error


def unreached(
    db: sqlite3.Connection, folder: Path, named: set[ObjectId] | None = None
) -> dict[ObjectId, int]:
    """Shared objects that no space names and that nothing leads to which one names; their sizes.

    `named` is what spaces name, if it is not what the database says. What lives is whole: an
    object of the content of a reference leads to others, which no record names.
    """
    if named is None:
        free = dict(
            db.execute("SELECT id, size FROM shared WHERE id NOT IN (SELECT id FROM named)")
        )
    else:
        rows = db.execute("SELECT id, size FROM shared")
        free = {id: size for id, size in rows if id not in named}
    if not free:
        return free
    leading = {id for (id,) in db.execute("SELECT id FROM shared WHERE leads")}
    pending = leading.difference(free)
    while pending:
        found: set[ObjectId] = set()
        for some in batched(pending):
            for id, frame in read(db, folder, some).frames.items():
                found.update(_links(shared_object(id, frame)))
        found.intersection_update(free)
        for id in found:
            del free[id]
        pending = leading & found
    return free


def collect(db: sqlite3.Connection, folder: Path, disk: Filesystem) -> tuple[int, int, list[Path]]:
    """Delete shared objects that nothing leads to: how many, their bytes, and files to remove.

    Inside a transaction, in which nobody else can come to name one. Packs of which less than half
    is left are written anew.
    """
    gone = unreached(db, folder)
    return len(gone), sum(gone.values()), remove(db, folder, disk, gone)


def remove(
    db: sqlite3.Connection, folder: Path, disk: Filesystem, ids: Iterable[ObjectId]
) -> list[Path]:
    """Delete shared objects; files to remove. Inside a transaction."""
    touched: set[int] = set()
    for some in batched(ids):
        marks = ", ".join("?" * len(some))
        rows = db.execute(f"SELECT DISTINCT pack FROM shared WHERE id IN ({marks})", some)  # noqa: S608
        touched.update(pack for (pack,) in rows)
        db.execute(f"DELETE FROM shared WHERE id IN ({marks})", some)  # noqa: S608
    return [file for number in sorted(touched) for file in _shrink(db, folder, disk, number)]


def _shrink(db: sqlite3.Connection, folder: Path, disk: Filesystem, number: int) -> list[Path]:
    """Write a pack anew if less than half of it is left; the file that is not needed then."""
    size, name = db.execute("SELECT size, file FROM packs WHERE number = ?", (number,)).fetchone()
    rows = db.execute(
        "SELECT id, start, size, length FROM shared WHERE pack = ? ORDER BY start", (number,)
    ).fetchall()
    left = sum(row[2] for row in rows)
    if 2 * left >= size:
        return []
    if rows:
        frames = read(db, folder, [row[0] for row in rows]).frames
        pieces = [frames[row[0]] for row in rows]
        if any(len(piece) != row[2] for piece, row in zip(pieces, rows, strict=True)):
            return []  # It cannot be read whole: it stays, for who restores it.
        packed = Pack((), pieces, None)
        path = write_ahead(disk, folder, packed).file if left > LARGE else None
        data = None if path else b"".join(pieces)
        file = None if path is None else path.name
        fresh = db.execute(
            "INSERT INTO packs (size, file, data) VALUES (?, ?, ?)", (left, file, data)
        ).lastrowid
        start = 0
        for id, _, length, _ in rows:
            db.execute("UPDATE shared SET pack = ?, start = ? WHERE id = ?", (fresh, start, id))
            start += length
    db.execute("DELETE FROM packs WHERE number = ?", (number,))
    return [] if name is None else [folder / name]


def remove_orphans(db: sqlite3.Connection, folder: Path, disk: Filesystem) -> None:
    """Remove old files that no pack names, left by writers that were killed.

    Inside a transaction, so that no pack can come to name one meanwhile.
    """
    if not folder.is_dir():
        return
    named = {file for (file,) in db.execute("SELECT file FROM packs WHERE file IS NOT NULL")}
    with os.scandir(folder) as files, suppress(FileNotFoundError):
        for file in files:
            if file.name not in named and time.time() - file.stat().st_mtime > _FORGOTTEN:
                disk.discard([Path(file.path)])


def _links(one: Object) -> Sequence[ObjectId]:
    try:
        return links(one)
    except FormatError:
        return ()  # None of ours: it leads nowhere.


def batched(ids: Iterable[ObjectId]) -> Iterator[list[ObjectId]]:
    """So many at a time as one statement takes."""
    remaining = iter(ids)
    while some := list(islice(remaining, _AT_A_TIME)):
        yield some
