"""Shared objects as files, one per object, named by its id.

A file gets its name once it is complete and durable. It is removed under the write lock when no
space references it, and a commit checks under the write lock that it exists. No other bookkeeping
is needed.
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

_HEAD: Final = 16  # Bytes that contain the kind and the length.
_CHUNK: Final = bytes((Kind.CHUNK,))
_SYNCED_AT_ONCE: Final = 4
_WORTH_THREADS: Final = 8  # With fewer items, starting threads takes longer than it saves.
_FORGOTTEN: Final = 3600.0  # Temporary files older than this many seconds are garbage.


class Objects:
    """The shared objects of one store. Changes need the write lock."""

    def __init__(self, root: Path, disk: Filesystem) -> None:
        self._root, self._disk = root, disk
        self._folder = root / OBJECTS

    # Reading. Lock-free.

    def frames(self, ids: Iterable[ObjectId]) -> dict[ObjectId, bytes]:
        """The files of objects, without missing ones."""
        found: dict[ObjectId, bytes] = {}
        for id in ids:
            with suppress(FileNotFoundError):
                found[id] = object_path(self._folder, id).read_bytes()
        return found

    def present(self, ids: Iterable[ObjectId]) -> set[ObjectId]:
        """Those of the ids whose files exist and are not empty."""
        return {id for id in ids if self._size(id)}

    def leading(self, ids: Iterable[ObjectId]) -> set[ObjectId]:
        """Those of the objects that may have links: all but parts of texts."""
        found: set[ObjectId] = set()
        for id in ids:
            with suppress(FileNotFoundError), open(object_path(self._folder, id), "rb") as file:
                if file.read(1) != _CHUNK:
                    found.add(id)
        return found

    def scan(self) -> Iterator[Stored]:
        """Every object whose file has a valid header."""
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
        """Write files under temporary names, durably. Does not need the write lock."""
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
        except FileNotFoundError:  # Omitted by a copy of the folder, because it was empty.
            self._disk.make_folder(self._root / NEW)
            self._disk.create(path, frame, sync=True)

    def install(self, objects: Iterable[Object], staged: Mapping[ObjectId, Path]) -> None:
        """Rename objects to their names, durably; objects that are not staged are written now."""
        waiting = {one.id: one for one in objects}
        below = {id: waiting.keys() & _links(one) for id, one in waiting.items()}
        while waiting:
            # Children are durable before their parents, so that whatever exists is complete.
            ready = [one for id, one in waiting.items() if not below[id] & waiting.keys()]
            for one in ready:
                del waiting[one.id]
                self._install(one, staged.get(one.id))
            self._sync({object_path(self._folder, one.id).parent for one in ready})

    def _install(self, one: Object, staged: Path | None) -> None:
        path = object_path(self._folder, one.id)
        self._make_folder(path.parent)
        if not self._rename(staged, path):
            # Its file was collected since the check, or taken for a leftover.
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
        """Make every name durable that was given and not synced."""
        self._disk.sync_folder(self._folder)
        self._sync(self._folders())

    def remove(self, ids: Iterable[ObjectId]) -> None:
        """Remove unreferenced objects, parents before their children."""
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
        with suppress(RopewalkError):  # A damaged one has no links.
            for frame in self.frames([id]).values():
                found = _links(shared_object(id, frame))
        return found

    def discard(self, ids: Iterable[ObjectId]) -> None:
        """Remove objects, whether or not they are referenced."""
        for id in ids:
            with suppress(FileNotFoundError):
                self._disk.remove(object_path(self._folder, id))

    def remove_orphans(self) -> None:
        """Remove the leftovers of killed writers."""
        with suppress(FileNotFoundError), os.scandir(self._root / NEW) as files:
            for file in files:
                if time.time() - file.stat().st_mtime > _FORGOTTEN:
                    self._disk.discard([Path(file.path)])

    def _sync(self, folders: Iterable[Path]) -> None:
        self._each(self._disk.sync_folder, folders)

    def _each(self, work: Callable[[T], None], given: Iterable[T]) -> None:
        """Run disk-bound work, on several threads where that is faster."""
        listed = list(given)
        if len(listed) < _WORTH_THREADS:
            for one in listed:
                work(one)
            return
        with ThreadPoolExecutor(min(_SYNCED_AT_ONCE, len(listed))) as pool:
            for _ in pool.map(work, listed):
                pass


def _stored(id: ObjectId, path: Path) -> Stored:
    """The header in an object's file; without one, the file's content is the object."""
    with open(path, "rb", buffering=0) as file:
        size, head = os.fstat(file.fileno()).st_size, file.read(_HEAD)
    try:
        kind, length = Kind(head[0]), read_varint(head, 2)[0]
    except (ValueError, IndexError):  # Includes `FormatError`.
        kind, length = Kind.CHUNK, size
    return Stored(id, kind, length, size)


def _links(one: Object) -> set[ObjectId]:
    """The links of an object; none if it is not one of ours."""
    try:
        return set(links(one))
    except FormatError:
        return set()


def _listed(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
