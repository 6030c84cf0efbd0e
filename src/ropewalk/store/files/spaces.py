"""Spaces as folders, each with a log, segments, its packed state and its leases."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from os import urandom
from pathlib import Path
from typing import Final, TypeVar
from zlib import crc32

from ropewalk.errors import FormatError, Unavailable
from ropewalk.store.files import formats
from ropewalk.store.files.formats import (
    LEASES,
    LIST,
    LOG,
    SEGMENTS,
    SPACE,
    SPACES,
    STATE,
    Extent,
    Packing,
    plain_space,
    replace_file,
    space_folder,
)
from ropewalk.store.files.space import (
    Listed,
    Space,
    Tail,
    catalog_row,
    damaged,
    encode_segment,
    names_rows,
)
from ropewalk.store.folder import Filesystem
from ropewalk.store.model import Durability
from ropewalk.store.record import GROUP, Append, Place, seal, sequence_of
from ropewalk.store.segment import Packed, commit_name, key_name, lookup_row
from ropewalk.tree.objects import ObjectId

T = TypeVar("T")

_SPACES: Final = 256  # How many are cached.
_LOOKS: Final = 3
_MOST_ENDS: Final = 2048  # Bytes of notes about where a log ended.
_FIRST_LINES: Final = 512 * 1024
_FORGOTTEN: Final = 3600.0  # Unreferenced files older than this many seconds are garbage.


class Spaces:
    """The spaces of one store. Changes need the write lock."""

    def __init__(self, root: Path, disk: Filesystem, durability: Durability) -> None:
        self._root, self._disk, self._durability = root, disk, durability
        self._folder = root / SPACES
        self._processes: dict[int, _Known] = {}
        self._unsynced: set[str] = set()
        self._ends: dict[str, int] = {}
        """The last record of each log that this store object wrote to, once it is durable."""

    # Reading. Lock-free.

    @contextmanager
    def looking(self, name: str) -> Iterator[Space]:
        """The current state of a space."""
        space = self._here().get(name, self._root)
        with space.lock:
            space.refresh()
            yield space

    def ask(self, name: str, question: Callable[[Space], T]) -> T:
        """Query a space, reading it again if its files change meanwhile."""
        failed = 0
        while True:
            with self.looking(name) as space:
                try:
                    return question(space)
                except (formats.Broken, FileNotFoundError, FormatError) as error:
                    failed += space.is_current()  # Otherwise a packer replaced the files.
                    space.forget()
                    if failed < _LOOKS:
                        continue
                    if isinstance(error, FormatError):
                        raise
                    if isinstance(error, formats.Broken):
                        raise damaged(space.log, error.place) from error
                    raise formats.damaged(Path(str(error.filename))) from error

    def names(self, prefix: str) -> list[str]:
        """The spaces that have operations."""
        files = (path for name in (LOG, SPACE, STATE) for path in self._folder.glob(f"*/*/{name}"))
        found = {_name_of(folder) for folder in {path.parent for path in files}}
        # If the folder of one is gone, reading that space raises the error.
        found |= self._here().begun(self._root / LIST)
        return sorted({name for name in found if name is not None and name.startswith(prefix)})

    def leases(self, name: str) -> formats.Leases:
        """The leases of a space."""
        return formats.read_leases(space_folder(self._folder, name) / LEASES, name)

    def examine(self) -> Iterator[tuple[str, str]]:
        """Find damage in leases and in the lists of packed records."""
        for path in sorted(self._folder.glob(f"*/*/{LEASES}")):
            try:
                formats.read_leases(path)
            except FormatError as error:
                yield str(path), str(error)
        for name in self.names(""):
            for look in (lambda space: space.indexed(()), lambda space: space.names()):
                try:
                    self.ask(name, look)
                except FormatError as error:
                    yield name, str(error)

    def _here(self) -> _Known:
        pid = os.getpid()
        return self._processes.get(pid) or self._processes.setdefault(pid, _Known())

    # Appending.

    def append(self, tail: Tail, append: Append, dictionary: int | None, frame: bytes) -> int:
        """Append a record to a log, the moment of the commit; returns the size of its line."""
        name, packing, path, end = tail.name, tail.packing, tail.log, tail.end
        sequence = tail.sequence + 1
        if tail.size > end:
            self._disk.truncate(path, end)
        full = self._durability == "full"
        if end == 0:
            self._make_folders(path.parent)
        elif full and tail.synced < tail.sequence:
            # A durable record must not follow one that is not.
            self.sync(name)
        line = formats.encode_line(
            append,
            sequence,
            packing.epoch,
            dictionary,
            seal(append.space, sequence, frame),
            self._durability,
        )
        data = line if end else formats.encode_start(name, packing.packed) + line
        try:
            self._disk.append(path, data, sync=full)
            if full and end == 0:
                self._sync_names(path.parent)
        except OSError as error:
            self._take_back(path, end, error)
            raise
        if full:
            self._ends[name] = sequence
            self._witness(path, name, sequence, begins=end == 0)
        else:
            self._unsynced.add(name)
        return len(line)

    def sync(self, name: str) -> None:
        """Make the content of a log and its name durable."""
        with self.looking(name) as space:
            path = space.log
        if path.exists():
            self._disk.append(path, b"", sync=True)
        if path.parent.is_dir():
            self._sync_names(path.parent)

    def sync_relaxed(self) -> None:
        """Sync the records that this store object wrote without a sync."""
        for name in sorted(self._unsynced):
            self.sync(name)
            with self.looking(name) as space:
                path, sequence, sound = space.log, space.sequence, space.size == space.end
                known = space.synced
            if sound:
                self._ends[name] = sequence
            if sound and known < sequence:
                self._witness(path, name, sequence, begins=not (path.parent / SPACE).exists())
        self._unsynced.clear()

    def note_ends(self) -> None:
        """Record where each log ends, so that a truncation at the end of a line is detected."""
        for name, sequence in self._ends.items():
            path = space_folder(self._folder, name) / SPACE
            start = formats.encode_start(name, 0)
            with suppress(OSError):
                if os.stat(path).st_size > _MOST_ENDS:
                    self._disk.truncate(path, len(start))
                self._disk.append(path, formats.encode_end(sequence), sync=False)
        self._ends.clear()

    def _take_back(self, path: Path, end: int, error: OSError) -> None:
        """Truncate the leftovers of a failed append, so that it has no effect."""
        try:
            if path.exists():
                self._disk.truncate(path, end)
        except OSError:
            raise Unavailable(
                f"{path} could not be written ({error.strerror}), and not be cut either. The "
                "commit may have happened: send it again with the same write id."
            ) from error

    def _witness(self, path: Path, name: str, sequence: int, *, begins: bool) -> None:
        """Record what is durable: in the log, and for a new log also beside it."""
        # It only helps to tell damage from a power loss.
        with suppress(OSError):
            self._disk.append(path, formats.encode_witness(sequence), sync=False)
            if begins:
                self._disk.append(path.parent / SPACE, formats.encode_start(name, 0), sync=False)
                self._disk.append(self._root / LIST, formats.encode_began(name), sync=False)

    def write_leases(self, name: str, leases: formats.Leases, *, sync: bool) -> None:
        """Replace leases."""
        path = space_folder(self._folder, name) / LEASES
        fresh = not path.exists()
        if fresh:
            self._make_folders(path.parent)
        data = formats.encode_leases(name, leases)
        replace_file(self._disk, self._root, path, data, sync=sync and not fresh)
        if fresh:
            self._sync_names(path.parent)

    def _make_folders(self, folder: Path) -> None:
        if not folder.is_dir():
            for one in (self._folder, folder.parent, folder):
                self._disk.make_folder(one)

    def _sync_names(self, folder: Path) -> None:
        for one in (folder, folder.parent, self._folder):
            self._disk.sync_folder(one)

    # Segments.

    def write_segment(self, name: str, packed: Packed) -> Listed:
        """Write a segment durably, not referenced yet. Does not need the write lock."""
        listed = Listed(packed.first, packed.last, urandom(8).hex(), crc32(packed.head))
        folder = space_folder(self._folder, name)
        path = folder / listed.file
        try:
            self._disk.make_folder(folder / SEGMENTS)
            self._disk.create(path, encode_segment(name, packed), sync=True)
            self._disk.sync_folder(folder / SEGMENTS)
        except BaseException:
            self._disk.discard([path])
            raise
        return listed

    def discard(self, name: str, segments: Iterable[Listed]) -> None:
        """Remove unreferenced segments."""
        folder = space_folder(self._folder, name)
        self._disk.discard([folder / one.file for one in segments])

    def pack(self, name: str, listed: Listed, commits: Sequence[tuple[ObjectId, Place]]) -> bool:
        """Replace records by a segment in one step; False if another writer did."""
        folder = space_folder(self._folder, name)
        with self.looking(name) as space:
            now, entries, sequence = space.packing, list(space.entries), space.sequence
            if now.packed + 1 != listed.first or sequence < listed.last:
                return False
            if listed.last % GROUP and sequence > listed.last:
                return False  # It may depend on what would be removed.
            if not (folder / listed.file).exists():
                return False  # Its writer slept until the file was taken for garbage.
            lines, refs = space.lines_after(listed.last), space.refs_at(listed.last)
            done = entries[: listed.last - now.packed]
            named = {id for one in done for id in one.names}
            if named:
                named -= space.packed_names()
        rows = [lookup_row(commit_name(id), sequence_of(place)) for id, place in commits]
        rows += [lookup_row(key_name(one.key), one.sequence) for one in done if one.key is not None]
        generation = now.generation + 1
        fresh = now._replace(
            generation=generation,
            packed=listed.last,
            log=f"{LOG}.{generation}",
            refs=refs,
            segments=self._extended(folder, now.segments, catalog_row(listed)),
            lookup=self._extended(folder, now.lookup, b"".join(rows), cache=True),
            names=self._extended(folder, now.names, names_rows(named)),
        )
        start = formats.encode_start(name, listed.last) + lines
        if lines:
            start += formats.encode_witness(sequence)
        self._write(folder / fresh.log, start)
        self._swap(name, folder, fresh)
        self._disk.discard([folder / now.log])
        return True

    def replace(
        self, name: str, epoch: int, replaced: Sequence[Listed], named: set[ObjectId]
    ) -> bool:
        """Replace segments, and raise the epoch; False if another collection did."""
        folder = space_folder(self._folder, name)
        with self.looking(name) as space:
            now = space.packing
            if now.epoch != epoch:
                return False
            before = space.segments() if replaced else []
            noted = space.packed_names()
        if not all((folder / one.file).exists() for one in replaced):
            return False
        changed = {one.last: one for one in replaced}
        old = [one for one in before if one.last in changed]
        if {(one.first, one.last) for one in old} != {(one.first, one.last) for one in replaced}:
            return False
        generation = now.generation + 1
        fresh = now._replace(generation=generation, epoch=epoch + 1)
        if replaced:
            catalog = b"".join([catalog_row(changed.get(one.last, one)) for one in before])
            fresh = fresh._replace(segments=self._anew(folder, "catalog", generation, catalog))
        if not noted <= named:
            rows = names_rows(noted & named)
            fresh = fresh._replace(names=self._anew(folder, "names", generation, rows))
        self._swap(name, folder, fresh)
        left = {now.segments.file, now.names.file} - {fresh.segments.file, fresh.names.file}
        self._disk.discard([folder / one for one in left])
        self.discard(name, old)
        return True

    def remove_orphans(self, name: str) -> None:
        """Remove what killed packers and collections left of a space."""
        folder = space_folder(self._folder, name)
        with self.looking(name) as space:
            now, segments = space.packing, [one.file for one in space.segments()]
        ours = {now.log, now.segments.file, now.lookup.file, now.names.file, *segments}
        for inside, begins in (
            (folder, ("log", "catalog.", "lookup.", "names.")),
            (folder / SEGMENTS, ("",)),
        ):
            with suppress(FileNotFoundError), os.scandir(inside) as files:
                for one in files:
                    path = Path(one.path)
                    if (
                        one.name.startswith(begins)
                        and path.relative_to(folder).as_posix() not in ours
                        and time.time() - one.stat().st_mtime > _FORGOTTEN
                    ):
                        self._disk.discard([path])

    def _extended(self, folder: Path, extent: Extent, data: bytes, cache: bool = False) -> Extent:
        """Append to a file after its valid content, durably."""
        if not data:
            return extent
        path = folder / extent.file
        size = os.stat(path).st_size if path.exists() else 0
        if size > extent.size:
            self._disk.truncate(path, extent.size)
        elif size < extent.size:
            if cache:
                return extent  # It stays as it is: damaged, and not needed.
            raise formats.damaged(path)
        self._disk.append(path, data, sync=True)
        return Extent(extent.file, extent.size + len(data), crc32(data, extent.crc))

    def _anew(self, folder: Path, kind: str, generation: int, data: bytes) -> Extent:
        file = f"{kind}.{generation}"
        self._write(folder / file, data)
        return Extent(file, len(data), crc32(data))

    def _write(self, path: Path, data: bytes) -> None:
        """Create a file, replacing what a killed packer left."""
        self._disk.discard([path])
        self._disk.create(path, data, sync=True)

    def _swap(self, name: str, folder: Path, packing: Packing) -> None:
        """Reference new files in one step. It is durable before anything else is removed."""
        self._disk.sync_folder(folder)
        data = formats.encode_packing(name, packing)
        replace_file(self._disk, self._root, folder / STATE, data)


class _Known:
    """The spaces that a process caches."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spaces: OrderedDict[str, Space] = OrderedDict()
        self._listing = threading.Lock()
        self._begun: set[str] = set()
        self._read = 0

    def get(self, name: str, root: Path) -> Space:
        with self._lock:
            found = self._spaces.get(name)
            if found is None:
                folder = space_folder(root / SPACES, name)
                found = Space(folder, name, lambda name: name in self.begun(root / LIST))
                self._spaces[name] = found
                if len(self._spaces) > _SPACES:
                    self._spaces.popitem(last=False)
            else:
                self._spaces.move_to_end(name)
            return found

    def begun(self, path: Path) -> set[str]:
        """The spaces known to have begun. A hint: a line may be lost or torn."""
        with self._listing, suppress(FileNotFoundError), open(path, "rb", buffering=0) as file:
            file.seek(self._read)
            data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._read += len(whole)
            for line in whole.splitlines():
                name = (formats.unseal(line + b"\n") or {}).get("began")
                if isinstance(name, str):
                    self._begun.add(name)
        return self._begun


def _name_of(folder: Path) -> str | None:
    """The name of the space of a folder; None if it has no operations."""
    for file in (STATE, SPACE):
        found = formats.name_in(folder / file)
        if found is not None and space_folder(folder.parent.parent, found) == folder:
            return found
    if (folder / STATE).exists():
        return _told_by(folder)
    path = folder / LOG
    try:
        with open(path, "rb", buffering=0) as opened:
            data = opened.read(_FIRST_LINES)
    except FileNotFoundError:
        return _told_by(folder)
    first = data.find(b"\n") + 1
    start = formats.unseal(data[:first])
    name = start.get("space") if start else plain_space(folder)
    try:
        found_lines = formats.read_lines(data[first if start else 0 :], first, 0).entries
    except formats.Broken as broken:
        if not isinstance(name, str):
            raise damaged(path, broken.place) from broken
        return name  # It had operations: reading them raises the error.
    return name if found_lines else None


def _told_by(folder: Path) -> str:
    """The name of a damaged space, so that it is listed and reading it raises the error."""
    name = plain_space(folder)
    if name is None:
        raise formats.damaged(folder / SPACE)
    return name
