"""Frames in an embedded store: packs in rows of the log, and files for large ones."""

from __future__ import annotations

import os
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from ropewalk.store._filesystem import Filesystem
from ropewalk.store._framing import Framed
from ropewalk.store._packs import build_pack, seal_pack
from ropewalk.store._records import Stored
from ropewalk.store._sqlite_entries import (
    ENTRY,
    Entry,
    build_contents,
    deltas_first,
    describe_file,
    read_entries,
    whole_frame,
)
from ropewalk.store._sqlite_index import Moment, portions, read_condemned, statement
from ropewalk.tree._objects import ID_SIZE, ObjectId

LARGE = 256 * 1024
"""A pack of more bytes is a file: SQLite would write it twice, and read it slower."""


# Of the types that they should have in any case: damage may make another of one.
_PACKS_AT_A_TIME = 64
_PLACE = "number, CAST(file AS TEXT), CAST(data AS BLOB)"
_CONTENTS = "number, space, CAST(entries AS BLOB), CAST(bases AS BLOB), file"


class Ahead(NamedTuple):
    """A pack that was written to a file before the transaction that will name it."""

    path: Path
    size: int
    """Bytes of the file."""
    frames: Sequence[Framed]


class Columns(NamedTuple):
    """What a row of the log says of its pack."""

    entries: bytes | None = None
    bases: bytes | None = None
    file: str | None = None
    data: bytes | None = None


class Place(NamedTuple):
    """Where the frames of a pack are: in a file, or in its row."""

    file: str | None
    data: bytes | None


class Frames(NamedTuple):
    """Frames, and the files that should have held others."""

    frames: dict[ObjectId, bytes]
    gone: set[str]


def read_frames(moment: Moment, folder: Path, ids: Iterable[ObjectId]) -> Frames:
    """Frames with everything that they are stored against. An empty one cannot be read."""
    read = Frames({}, set())
    wanted = list(ids)
    while wanted:
        packs: dict[int, list[Entry]] = defaultdict(list)
        bases: set[ObjectId] = set()
        for found in moment.find(wanted).values():
            packs[found.number].append(found.entry)
            if found.entry.base is not None:
                bases.add(found.entry.base)
        for numbers in batched(packs, _PACKS_AT_A_TIME):
            places = read_places(moment.db, numbers)
            for number in numbers:
                _read_pack(places.get(number), folder, packs[number], read)
        wanted = [base for base in bases if base not in read.frames]
    return read


def read_pack(
    db: sqlite3.Connection, folder: Path, number: int, entries: Sequence[Entry], read: Frames
) -> None:
    """Read some frames of one pack."""
    _read_pack(read_places(db, [number]).get(number), folder, entries, read)


def batched(numbers: Iterable[int], most: int) -> Iterator[list[int]]:
    """So many at a time."""
    rest = iter(numbers)
    while some := list(islice(rest, most)):
        yield some


def read_places(db: sqlite3.Connection, numbers: Iterable[int]) -> dict[int, Place]:
    """Where the frames of packs are."""
    found: dict[int, Place] = {}
    for some in portions(numbers):
        rows = db.execute(statement(_PLACE, "log", "number", len(some)), some)
        found.update((number, Place(file, data)) for number, file, data in rows)
    return found


def _read_pack(place: Place | None, folder: Path, entries: Sequence[Entry], read: Frames) -> None:
    file, data = place or Place(None, None)
    if file is not None:
        try:
            _read_file(folder / file, entries, read.frames)
        except FileNotFoundError:
            read.gone.add(file)
            read.frames.update((one.id, b"") for one in entries)
        return
    for one in entries:
        piece = (data or b"")[one.start : one.start + one.length]
        read.frames[one.id] = whole_frame(piece, one.base) if len(piece) == one.length else b""


class Page(NamedTuple):
    """What some rows of the log hold."""

    stored: list[Stored]
    moved: bool
    """Whether a collection wrote one of the rows: it had the objects in others before."""
    last: int | None
    """The last of the rows; None at the end of the log."""


def scan_after(db: sqlite3.Connection, after: int, limit: int) -> Page:
    """What the rows after this one hold: so many of them, and no more than it takes to
    have as many objects. One row may hold thousands."""
    rows: list[tuple[Any, ...]] = []
    held = 0
    for row in db.execute(
        f"SELECT {_CONTENTS} FROM log WHERE number > ? ORDER BY number LIMIT ?",  # noqa: S608
        (after, limit),
    ):
        rows.append(row)
        held += len(row[2] or b"") // ENTRY.size
        if held >= limit:
            break
    full = held >= limit or len(rows) == limit
    living = [
        (one, file is None)
        for _, _, entries, bases, file in rows
        for one in read_entries(entries, bases)
        if not one.gone
    ]
    marked = read_condemned(db, (one.id for one, _ in living))
    return Page(
        [_stored(one, in_row, one.id in marked) for one, in_row in living],
        any(space is None for _, space, *_ in rows),
        rows[-1][0] if full else None,
    )


def write_ahead(disk: Filesystem, folder: Path, frames: Iterable[Framed]) -> Ahead:
    """Put frames into a file of its own, which survives a power loss."""
    ordered = deltas_first(frames)
    sealed = seal_pack(build_pack(ordered))
    path = folder / f"{os.urandom(16).hex()}.pack"
    try:
        if not folder.is_dir():  # Left out of a copy, because it was empty.
            disk.make_folder(folder)
            disk.sync_folder(folder.parent)
        disk.create(path, sealed, sync=True)
        disk.sync_folder(folder)
    except BaseException:
        disk.discard([path])
        raise
    return Ahead(path, len(sealed), ordered)


def add_file(db: sqlite3.Connection, frames: Iterable[Framed], ahead: Ahead) -> Columns:
    """The columns of a pack in a file, of which these frames are stored."""
    entries, bases = describe_file(ahead.frames, (one.id for one in frames))
    db.execute("UPDATE facts SET files = files + ?", (ahead.size,))
    return Columns(entries, bases, ahead.path.name)


def pack_columns(frames: Sequence[Framed]) -> Columns:
    """The columns of a pack in its row."""
    if not frames:
        return Columns()
    contents = build_contents(frames)
    return Columns(contents.entries, contents.bases, None, contents.data)


def insert_pack(db: sqlite3.Connection, columns: Columns) -> int:
    """A row for a pack without an operation."""
    number = db.execute(
        "INSERT INTO log (entries, bases, file, data) VALUES (?, ?, ?, ?)", columns
    ).lastrowid
    assert number is not None
    return number


def _read_file(path: Path, entries: Iterable[Entry], frames: dict[ObjectId, bytes]) -> None:
    with open(path, "rb", buffering=0) as file:
        for one in sorted(entries, key=lambda one: one.start):
            file.seek(one.start)
            frames[one.id] = file.read(one.length)


def _stored(one: Entry, in_row: bool, condemned: bool) -> Stored:
    stored = one.length + (ID_SIZE if in_row and one.base is not None else 0)
    return Stored(one.id, one.kind, one.size, stored, one.base, condemned)
