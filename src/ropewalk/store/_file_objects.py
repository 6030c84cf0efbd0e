"""Objects as files: one frame each, under the object's name.

A file gets its name when all of it is there and durable. A condemned object has a second
name, with the number of the collection that condemned it behind; if a living one stands
beside it, that counts. `collections/` holds an empty file for each such number, so that
they can be found without looking through folders.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

from ropewalk.errors import FormatError
from ropewalk.store._decide import Presence
from ropewalk.store._file_paths import (
    COLLECTIONS,
    CONDEMNED,
    NEW,
    OBJECTS,
    condemned_path,
    object_path,
    temporary,
)
from ropewalk.store._filesystem import Filesystem
from ropewalk.store._frames import parse_header
from ropewalk.store._framing import Framed
from ropewalk.store._records import Stored
from ropewalk.tree.objects import ID_SIZE, ObjectId

T = TypeVar("T")

_HEADER_SIZE = 2 + 4 + ID_SIZE
_SYNCED_AT_ONCE = 4
_WORTH_THREADS = 8  # Below this, starting them takes longer than they save.
_FORGOTTEN = 3600.0  # Seconds after which a file without its real name is nobody's.


class Found(NamedTuple):
    """The file of an object."""

    place: str
    length: int
    data: bytes
    """All of it, or its beginning."""
    condemned: bool

    @property
    def path(self) -> Path:
        """Its path."""
        return Path(self.place)


class Objects:
    """The objects of one store. What changes them needs the right to write."""

    def __init__(self, root: Path, disk: Filesystem) -> None:
        self._root, self._disk = root, disk
        self._folder = root / OBJECTS
        self._prefix = f"{self._folder}{os.sep}"
        self._collections = root / COLLECTIONS

    # Reading. Needs no right, and waits for nobody.

    def frames(self, ids: Sequence[ObjectId]) -> dict[ObjectId, bytes]:
        """The frames of objects, without those that are absent."""
        found = self._find(ids, None)
        absent = [id for id in ids if id not in found]
        if absent:
            # One may have been condemned before the first look and revived before the second.
            found |= self._find(absent, None)
        return {id: one.data for id, one in found.items()}

    def presence(self, ids: Iterable[ObjectId]) -> dict[ObjectId, Presence]:
        """Depth and condemnation; one whose file is no frame counts as absent."""
        present: dict[ObjectId, Presence] = {}
        for id, found in self._find(ids, _HEADER_SIZE).items():
            with suppress(FormatError):
                present[id] = Presence(parse_header(found.data).depth, found.condemned)
        return present

    def scan(self) -> Iterator[Stored]:
        """Every object whose file is a frame."""
        for folder in self._folders():
            for id in self._inside(folder):
                for found in self._find([id], _HEADER_SIZE).values():
                    with suppress(FormatError):
                        yield _stored(id, found)

    def examine(self) -> Iterator[tuple[str, str]]:
        """Files that are no frames, which `scan` passes over."""
        for folder in self._folders():
            for id in self._inside(folder):
                for found in self._find([id], _HEADER_SIZE).values():
                    try:
                        parse_header(found.data)
                    except FormatError as error:
                        yield str(found.path), f"{error}. Restore it, or remove it."

    def _inside(self, folder: Path) -> set[ObjectId]:
        """The objects of one folder, condemned or not."""
        inside: set[ObjectId] = set()
        for name in _listed(folder):
            with suppress(ValueError):
                inside.add(bytes.fromhex(folder.name + name.partition(CONDEMNED)[0]))
        return {id for id in inside if len(id) == ID_SIZE}

    def _find(self, ids: Iterable[ObjectId], size: int | None) -> dict[ObjectId, Found]:
        found: dict[ObjectId, Found] = {}
        absent = list(ids)
        # A collection may give a file its other name between two looks: then the first
        # place is worth a second one.
        for _ in range(3):
            absent = [id for id in absent if not self._look(id, None, size, found)]
            collections = self.collections() if absent else []
            if not collections:
                break
            for number in collections:
                absent = [id for id in absent if not self._look(id, number, size, found)]
            if not absent:
                break
        return found

    def _look(
        self, id: ObjectId, collection: int | None, size: int | None, found: dict[ObjectId, Found]
    ) -> bool:
        # Every commit comes by here many times: paths are slower than their texts.
        name = id.hex()
        place = f"{self._prefix}{name[:2]}{os.sep}{name[2:]}"
        if collection is not None:
            place = f"{place}{CONDEMNED}{collection}"
        try:
            opened = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            length = os.fstat(opened).st_size
            data = os.read(opened, length if size is None else size)
        finally:
            os.close(opened)
        found[id] = Found(place, length, data, collection is not None)
        return True

    def collections(self) -> list[int]:
        """The numbers of collections that condemned something."""
        return [int(name) for name in _listed(self._collections) if _is_number(name)]

    def _folders(self) -> list[Path]:
        return [self._folder / name for name in sorted(_listed(self._folder)) if len(name) == 2]

    # Writing.

    def stage(self, frames: Sequence[Framed]) -> dict[ObjectId, Path]:
        """Write frames under temporary names, durably. Needs no right yet."""
        staged = {one.id: temporary(self._root) for one in frames}
        paths = [staged[one.id] for one in frames]
        try:
            self._each(self._create, zip(paths, frames, strict=True))
        except BaseException:
            self._disk.discard(paths)
            raise
        return staged

    def _create(self, given: tuple[Path, Framed]) -> None:
        path, framed = given
        try:
            self._disk.create(path, framed.frame, sync=True)
        except FileNotFoundError:  # Left out of a copy, because it was empty.
            self._disk.make_folder(self._root / NEW)
            self._disk.create(path, framed.frame, sync=True)

    def install(
        self,
        frames: Iterable[Framed],
        staged: Mapping[ObjectId, Path],
        present: Mapping[ObjectId, Presence],
    ) -> None:
        """Give frames their names, durably, in the place of condemned ones too."""
        folders: set[Path] = set()
        for framed in frames:
            path = object_path(self._folder, framed.id)
            self._make_folder(path.parent)
            self._place(framed, staged.get(framed.id), path)
            folders.add(path.parent)
        self._sync(folders)
        # The living name comes first, so there is a name at every moment.
        revived = [framed.id for framed in frames if framed.id in present]
        marks = self.collections() if revived else []
        for id in revived:
            self._drop_marks(id, marks)

    def _place(self, framed: Framed, temporary_path: Path | None, path: Path) -> None:
        if temporary_path is not None:
            # Who slept for long may find its file taken for a forgotten one.
            with suppress(FileNotFoundError):
                self._disk.rename(temporary_path, path)
                return
        (fresh,) = self.stage([framed]).values()
        self._disk.rename(fresh, path)

    def _make_folder(self, folder: Path) -> None:
        if not os.path.isdir(folder):
            self._disk.make_folder(self._folder)
            self._disk.make_folder(folder)
            self._disk.sync_folder(self._folder)

    def sync_all(self) -> None:
        """Make every name durable that somebody gave and did not sync."""
        self._disk.sync_folder(self._folder)
        self._sync(self._folders())

    def _sync(self, folders: Iterable[Path]) -> None:
        self._each(self._disk.sync_folder, folders)

    # Collection.

    def condemn(self, ids: Iterable[ObjectId], collection: int) -> None:
        """Give objects the name of what a collection condemned."""
        self._note(collection)
        marks = self.collections()
        folders: set[Path] = set()
        for id, found in self._find(ids, 0).items():
            path = condemned_path(self._folder, id, collection)
            if not found.condemned:
                self._drop_marks(id, marks)  # Else an older frame could come back for it.
            if found.path != path:
                self._disk.rename(found.path, path)
                folders.add(path.parent)
        self._sync(folders)

    def revive(self, ids: Iterable[ObjectId]) -> None:
        """Give objects their living name back."""
        folders: set[Path] = set()
        for id, found in self._find(ids, 0).items():
            if found.condemned:
                path = object_path(self._folder, id)
                self._disk.rename(found.path, path)
                folders.add(path.parent)
        self._sync(folders)

    def delete(self, ids: Iterable[ObjectId], collection: int) -> list[ObjectId]:
        """Remove what this collection condemned; the deepest first, so that no chain breaks."""
        doomed: defaultdict[int, list[ObjectId]] = defaultdict(list)
        for id, found in self._find(ids, _HEADER_SIZE).items():
            if found.path == condemned_path(self._folder, id, collection):
                doomed[_depth(found.data)].append(id)
        for _, some in sorted(doomed.items(), reverse=True):
            paths = [condemned_path(self._folder, id, collection) for id in some]
            for path in paths:
                self._disk.remove(path)
            self._sync({path.parent for path in paths})
        gone = {id for some in doomed.values() for id in some}
        return [id for id in ids if id in gone]

    def tidy(self) -> None:
        """Remove what killed writers and finished collections left."""
        marks = self._remove_stale_marks()
        for number in self.collections():
            if number not in marks:
                self._disk.discard([self._collections / str(number)])
        with suppress(FileNotFoundError), os.scandir(self._root / NEW) as files:
            for file in files:
                if time.time() - file.stat().st_mtime > _FORGOTTEN:
                    self._disk.discard([Path(file.path)])

    def _remove_stale_marks(self) -> set[int]:
        """Remove condemned files beside living ones; the numbers of those that remain."""
        marks: set[int] = set()
        for folder in self._folders():
            names = set(_listed(folder))
            for name in names:
                hexadecimal, mark, number = name.partition(CONDEMNED)
                if mark and hexadecimal in names:
                    self._disk.discard([folder / name])
                elif mark and _is_number(number):
                    marks.add(int(number))
        return marks

    def _note(self, collection: int) -> None:
        """A collection is found by its number before it has condemned anything."""
        path = self._collections / str(collection)
        if path.exists():
            return
        self._disk.make_folder(self._collections)
        self._disk.append(path, b"", sync=True)
        self._disk.sync_folder(self._collections)
        self._disk.sync_folder(self._root)

    def _drop_marks(self, id: ObjectId, marks: Iterable[int]) -> None:
        paths = [condemned_path(self._folder, id, number) for number in marks]
        self._disk.discard(path for path in paths if path.exists())

    def _each(self, work: Callable[[T], None], given: Iterable[T]) -> None:
        """Do work that waits for the disk, on several threads where that is faster."""
        listed = list(given)
        if len(listed) < _WORTH_THREADS:
            for one in listed:
                work(one)
            return
        with ThreadPoolExecutor(min(_SYNCED_AT_ONCE, len(listed))) as pool:
            for _ in pool.map(work, listed):
                pass


def _stored(id: ObjectId, found: Found) -> Stored:
    header = parse_header(found.data)
    return Stored(id, header.kind, header.length, found.length, header.base, found.condemned)


def _depth(frame: bytes) -> int:
    try:
        return parse_header(frame).depth
    except FormatError:
        return 0


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit()


def _listed(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
