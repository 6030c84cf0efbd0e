"""Shared objects as files: one each, under the object's name.

A file gets its name when all of it is there and durable. It is removed by who has the right to
write, when no space leads to it; and who commits with that right looks whether it is there. So
nothing has to be noted beside it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from ropewalk.errors import FormatError, RopewalkError
from ropewalk.store.compression import read_varint
from ropewalk.store.files.formats import NEW, OBJECTS, object_path, temporary
from ropewalk.store.folder import Filesystem
from ropewalk.store.log import shared_frame
from ropewalk.store.lookup import shared_object
from ropewalk.store.model import Stored
from ropewalk.tree.nodes import links
from ropewalk.tree.objects import ID_SIZE, Kind, Object, ObjectId

T = TypeVar("T")

_HEAD: Final = 16  # Bytes in which the kind and the length stand.
_CHUNK: Final = bytes((Kind.CHUNK,))
_SYNCED_AT_ONCE: Final = 4
_WORTH_THREADS: Final = 8  # Below this, starting them takes longer than they save.
_FORGOTTEN: Final = 3600.0  # Seconds after which a file without its real name is nobody's.


class Objects:
    """The shared objects of one store. What changes them needs the right to write."""

    def __init__(self, root: Path, disk: Filesystem) -> None:
        self._root, self._disk = root, disk
        self._folder = root / OBJECTS

    # Reading. Needs no right, and waits for nobody.

    def frames(self, ids: Iterable[ObjectId]) -> dict[ObjectId, bytes]:
        """The files of objects, without those that are absent."""
        found: dict[ObjectId, bytes] = {}
        for id in ids:
            with suppress(FileNotFoundError):
                found[id] = object_path(self._folder, id).read_bytes()
        return found

    def present(self, ids: Iterable[ObjectId]) -> set[ObjectId]:
        """Those of the ids whose files are there and not empty."""
        return {id for id in ids if self._size(id)}

    def leading(self, ids: Iterable[ObjectId]) -> set[ObjectId]:
        """Those of the objects that may lead to others: all but parts of texts."""
        found: set[ObjectId] = set()
        for id in ids:
            with suppress(FileNotFoundError), open(object_path(self._folder, id), "rb") as file:
                if file.read(1) != _CHUNK:
                    found.add(id)
        return found

    def scan(self) -> Iterator[Stored]:
        """Every object whose file says what it is."""
        for folder in self._folders():
            for name in sorted(_listed(folder)):
                with suppress(ValueError, FileNotFoundError):
                    id = bytes.fromhex(folder.name + name)
                    if len(id) == ID_SIZE:
                        yield _stored(id, folder / name)

    def _size(self, id: ObjectId) -> int:
        try:
            return os.stat(object_path(self._folder, id)).st_size
        except FileNotFoundError:
            return 0

    def _folders(self) -> list[Path]:
        return [self._folder / name for name in sorted(_listed(self._folder)) if len(name) == 2]

    # Writing.

    def stage(self, objects: Sequence[tuple[ObjectId, bytes]]) -> dict[ObjectId, Path]:
        """Write files under temporary names, durably. Needs no right yet."""
        staged = {id: temporary(self._root) for id, _ in objects}
        try:
            self._each(self._create, [(staged[id], frame) for id, frame in objects])
        except BaseException:
            self._disk.discard(staged.values())
            raise
        return staged

    def _create(self, given: tuple[Path, bytes]) -> None:
        path, frame = given
        try:
            self._disk.create(path, frame, sync=True)
        except FileNotFoundError:  # Left out of a copy, because it was empty.
            self._disk.make_folder(self._root / NEW)
            self._disk.create(path, frame, sync=True)

    def install(self, objects: Iterable[Object], staged: Mapping[ObjectId, Path]) -> None:
        """Give objects their names, durably; those that are not staged are written now."""
        waiting = {one.id: one for one in objects}
        below = {id: waiting.keys() & _links(one) for id, one in waiting.items()}
        while waiting:
            # What one leads to is durable before it, so that what is there is whole.
            ready = [one for id, one in waiting.items() if not below[id] & waiting.keys()]
            for one in ready:
                del waiting[one.id]
                self._install(one, staged.get(one.id))
            self._sync({object_path(self._folder, one.id).parent for one in ready})

    def _install(self, one: Object, staged: Path | None) -> None:
        path = object_path(self._folder, one.id)
        self._make_folder(path.parent)
        if not self._rename(staged, path):
            # Its file was collected since we looked, or taken for a forgotten one.
            self._rename(self.stage([(one.id, shared_frame(one))])[one.id], path)

    def _rename(self, staged: Path | None, path: Path) -> bool:
        if staged is None:
            return False
        with suppress(FileNotFoundError):
            self._disk.rename(staged, path)
            return True
        return False

    def _make_folder(self, folder: Path) -> None:
        if not os.path.isdir(folder):
            self._disk.make_folder(self._folder)
            self._disk.make_folder(folder)
            self._disk.sync_folder(self._folder)

    def sync_all(self) -> None:
        """Make every name durable that somebody gave and did not sync."""
        self._disk.sync_folder(self._folder)
        self._sync(self._folders())

    def remove(self, ids: Iterable[ObjectId]) -> None:
        """Remove objects to which nothing else leads, those that lead to others first."""
        parts = set(ids)
        leading = self.leading(parts)
        parts -= leading
        below = {id: self._below(id) & leading for id in leading}
        while leading:
            ready = leading.difference(*[below[id] for id in leading])
            self.discard(ready)
            self._sync({object_path(self._folder, id).parent for id in ready})
            leading -= ready
        self.discard(parts)

    def _below(self, id: ObjectId) -> set[ObjectId]:
        found: set[ObjectId] = set()
        with suppress(RopewalkError):  # One that is damaged leads nowhere.
            for frame in self.frames([id]).values():
                found = _links(shared_object(id, frame))
        return found

    def discard(self, ids: Iterable[ObjectId]) -> None:
        """Remove objects, whatever leads to them."""
        for id in ids:
            with suppress(FileNotFoundError):
                self._disk.remove(object_path(self._folder, id))

    def remove_orphans(self) -> None:
        """Remove what killed writers left."""
        with suppress(FileNotFoundError), os.scandir(self._root / NEW) as files:
            for file in files:
                if time.time() - file.stat().st_mtime > _FORGOTTEN:
                    self._disk.discard([Path(file.path)])

    def _sync(self, folders: Iterable[Path]) -> None:
        self._each(self._disk.sync_folder, folders)

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


def _stored(id: ObjectId, path: Path) -> Stored:
    """What a file says of its object; one that says nothing counts as it is."""
    with open(path, "rb", buffering=0) as file:
        size, head = os.fstat(file.fileno()).st_size, file.read(_HEAD)
    try:
        kind, length = Kind(head[0]), read_varint(head, 2)[0]
    except (ValueError, IndexError):  # A `FormatError` is one too.
        kind, length = Kind.CHUNK, size
    return Stored(id, kind, length, size)


def _links(one: Object) -> set[ObjectId]:
    """What an object leads to; nothing if it is none of ours."""
    try:
        return set(links(one))
    except FormatError:
        return set()


def _listed(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
