"""One space as read from its files: its refs, its last record, and the location of records.

A space follows its log, reading only what was appended since the last read. `state.json` has the
last packed record, the refs at that record, and the name of the tail's file; it is replaced
atomically. Three more files are append-only, and `state.json` has their valid lengths:

    catalog   a line for each segment: its first and last record, its file, a crc32 of its head
    lookup    the rows of `store.segment`. Without them, all records are scanned.
    names     a line for each shared object that packed records reference
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from errno import ENOENT
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

from ropewalk.errors import Corrupt, FormatError
from ropewalk.store.files import formats
from ropewalk.store.files.formats import HEADER, LOG, SEGMENTS, SPACE, STATE, Broken, Entry, Extent
from ropewalk.store.model import Ref
from ropewalk.store.record import Row
from ropewalk.store.segment import Packed, find_rows
from ropewalk.tree.objects import ObjectId

_LOOKS: Final = 3  # A writer may cut off a torn end, or a packer replace the log, during a read.
_KEPT: Final = 1 << 20  # Files up to this size are cached.
_CATALOG_ROW: Final = 12 + 1 + 12 + 1 + 16 + 1 + 8 + 1

_Signature = tuple[int, int, int, int] | None
_NOT_LOOKED: Final = (-1, -1, -1, -1)


class Listed(NamedTuple):
    """A segment in the catalog."""

    first: int
    last: int
    name: str
    crc: int

    @property
    def file(self) -> str:
        """Its file, in the folder of the space."""
        return f"{SEGMENTS}/{self.first}-{self.last}.{self.name}"


class Tail(NamedTuple):
    """Where the next record of a space is appended."""

    name: str
    packing: formats.Packing
    log: Path
    sequence: int
    synced: int
    """The last record known to be durable."""
    end: int
    """The end of the intact part of the log."""
    size: int
    """The length of the log; more than `end` if its end is torn."""


class Space:
    """One space, as far as its files were read. Not thread-safe: hold its `lock`."""

    def __init__(self, folder: Path, name: str, has_begun: Callable[[str], bool]) -> None:
        """`has_begun` tells whether the space of a name is known to have had a log."""
        self.folder, self.name = folder, name
        self._has_begun = has_begun
        self.lock = threading.Lock()
        self._state = folder / STATE
        self.forget()

    def forget(self) -> None:
        """Read everything again on the next access."""
        self._signature: tuple[_Signature, _Signature] = _NOT_LOOKED, _NOT_LOOKED
        self._contents: dict[Extent, bytes] = {}
        self._closed_at = 0
        """The last record when somebody closed the store, which was durable then."""
        self._begin(formats.unpacked(LOG))

    def _begin(self, packing: formats.Packing) -> None:
        self.packing = packing
        self.log = self.folder / packing.log
        self.refs = {ref.name: ref for ref in packing.refs}
        self.sequence = packing.packed
        self.synced = packing.packed
        """The last record that is known to be durable."""
        self.entries: list[Entry] = []
        """Those in the tail."""
        self.end = 0
        """Where the sound part of the log ends."""
        self.size = 0
        """How long the log was; more than `end` if its end is torn."""
        self._last = (0, b"")

    # Following the log.

    def refresh(self) -> None:
        """Read what changed; `Corrupt` if the files are inconsistent."""
        failed = 0
        while True:
            stated, logged = _sign(self._state), _sign(self.log)
            if (stated, logged) == self._signature:
                return
            try:
                if stated != self._signature[0]:
                    self._restart(stated)
                    logged = _sign(self.log)
                if logged is None:
                    self._expect_nothing()
                else:
                    self._follow()
                if self.sequence < self._closed_at:
                    raise Broken(self.end)
            except (Broken, FileNotFoundError) as error:
                if isinstance(error, FileNotFoundError):
                    self._expect_store()
                log = self.log
                self.forget()
                # Inconsistent because a packer replaced the log in between, perhaps.
                failed += _sign(self._state) == stated
                if failed == _LOOKS:
                    raise damaged(log, getattr(error, "place", 0)) from error
            except FormatError:
                self.forget()
                raise
            else:
                self._signature = stated, logged
                return

    def is_current(self) -> bool:
        """Whether the space was not packed since it was read."""
        return _sign(self._state) == self._signature[0]

    def _restart(self, stated: _Signature) -> None:
        self._closed_at = formats.read_end(self.folder / SPACE)
        known = self.packing.generation
        if stated is not None:
            self._begin(formats.read_packing(self._state, self.name))
        elif known:
            self._expect_store()
            raise Broken(0)
        else:
            self._begin(formats.unpacked(LOG))

    def _expect_store(self) -> None:
        root = self.folder.parents[2]
        if not (root / HEADER).exists():
            raise FileNotFoundError(ENOENT, os.strerror(ENOENT), str(root))  # All of it is gone.

    def _expect_nothing(self) -> None:
        """Without a log, check that there never was one."""
        if self.sequence:
            self._expect_store()
        if self.sequence or self.packing.generation:
            raise Broken(0)
        self._expect_none_synced()
        if any(name.startswith(f"{LOG}.") for name in _listed(self.folder)):
            raise Broken(0)  # A successor of the missing log.

    def _expect_none_synced(self) -> None:
        """A log without an intact line has a torn end, unless it was synced before."""
        if self.packing.generation or (self.folder / SPACE).exists():
            raise Broken(0)
        if self._has_begun(self.name):
            self._expect_store()
            raise Broken(0)

    def _follow(self) -> None:
        place, last = self._last
        with open(self.log, "rb", buffering=0) as file:
            file.seek(place)
            data = file.read()
        self.size = place + len(data)
        if not data.startswith(last):
            raise Broken(place)
        begin = len(last)
        if self.end == 0:
            begin = self._read_start(data)
            if begin == 0:
                return
            self.end = begin
        found = formats.read_lines(data[begin:], place + begin, self.sequence)
        for one in found.entries:
            self._add(one)
        if found.entries:
            line = found.entries[-1]
            self._last = (line.start, data[line.start - place : line.end - place])
        self.synced = max(self.synced, found.synced)
        self.end = max(self.end, found.end)

    def _read_start(self, data: bytes) -> int:
        first = data.find(b"\n") + 1
        if formats.unseal(data[:first]) is None:
            formats.read_lines(data, 0, 0)  # Broken, unless all of it is torn.
            self._expect_none_synced()
            return 0
        formats.read_start(data[:first], self.name, self.packing.packed)
        self._last = (0, data[:first])
        return first

    def _add(self, one: Entry) -> None:
        self.sequence = one.sequence
        self.entries.append(one)
        move_refs(self.refs, one)

    # The tail.

    def tail(self) -> Tail:
        """Where the next record is appended."""
        return Tail(
            self.name, self.packing, self.log, self.sequence, self.synced, self.end, self.size
        )

    def rows(self, first: int, last: int) -> list[Row]:
        """Records of the tail."""
        before = self.packing.packed
        some = self.entries[max(first - before - 1, 0) : max(last - before, 0)]
        if not some:
            return []
        begin = some[0].start
        data = self._read_log(begin, some[-1].end)
        return [formats.read_row(data[one.start - begin : one.end - begin], one) for one in some]

    def lines_after(self, sequence: int) -> bytes:
        """The lines of records after a number."""
        some = self.entries[sequence - self.packing.packed :]
        lines = [self._read_log(one.start, one.end) for one in some]
        for one, line in zip(some, lines, strict=True):
            formats.read_row(line, one)
        return b"".join(lines)

    def refs_at(self, sequence: int) -> tuple[Ref, ...]:
        """The refs after a record of the tail."""
        refs = {ref.name: ref for ref in self.packing.refs}
        for one in self.entries[: sequence - self.packing.packed]:
            move_refs(refs, one)
        return tuple(sorted(refs.values()))

    def _read_log(self, start: int, end: int) -> bytes:
        with open(self.log, "rb", buffering=0) as file:
            file.seek(start)
            return file.read(end - start)

    # What is packed.

    def read(self, extent: Extent) -> bytes:
        """The valid content of a file; `FormatError` if it is damaged."""
        if not extent.size:
            return b""
        found = self._contents.get(extent)
        if found is None:
            path = self.folder / extent.file
            with open(path, "rb", buffering=0) as file:
                found = file.read(extent.size)
            if len(found) != extent.size or crc32(found) != extent.crc:
                raise formats.damaged(path)
            if extent.size <= _KEPT:
                for known in [one for one in self._contents if one.file == extent.file]:
                    del self._contents[known]
                self._contents[extent] = found
        return found

    def segments(self) -> list[Listed]:
        """All segments, in order."""
        rows = self.read(self.packing.segments)
        return [_listed_at(rows, at) for at in range(0, len(rows), _CATALOG_ROW)]

    def segment(self, sequence: int) -> Packed | None:
        """The segment that holds a record."""
        if sequence > self.packing.packed:
            return None
        rows = self.read(self.packing.segments)
        count = len(rows) // _CATALOG_ROW
        at = bisect_left(
            range(count), sequence, key=lambda at: _listed_at(rows, at * _CATALOG_ROW).last
        )
        if at == count:
            return None
        return read_segment(self.folder, self.name, _listed_at(rows, at * _CATALOG_ROW))

    def indexed(self, names: Iterable[bytes]) -> list[list[int]]:
        """The packed records with commits or keys: see `commit_name`, `key_name`.

        The result may contain others. Raises `FormatError` if `lookup` is damaged.
        """
        rows = self.read(self.packing.lookup)
        return [
            [one for one in find_rows(rows, name) if one <= self.packing.packed] for name in names
        ]

    def packed_names(self) -> set[ObjectId]:
        """Shared objects listed for packed records."""
        rows = self.read(self.packing.names)
        return {bytes.fromhex(one) for one in rows.decode("ascii").split()}

    def names(self) -> set[ObjectId]:
        """Shared objects that the space references, as far as listed."""
        return self.packed_names().union(*[one.names for one in self.entries])


def move_refs(refs: dict[str, Ref], one: Entry) -> None:
    """Apply the ref moves of a record."""
    for name, _, target in one.moves:
        if target is None:
            refs.pop(name, None)
        else:
            refs[name] = Ref(name, target, one.sequence)


# Segments.


def encode_segment(space: str, packed: Packed) -> bytes:
    """The file of a segment: a header line, its head, and its blocks."""
    said = {
        "space": space, "first": packed.first, "last": packed.last,
        "head": len(packed.head), "data": len(packed.data),
    }  # fmt: skip
    return formats.seal(said) + packed.head + packed.data


def read_segment(folder: Path, space: str, listed: Listed) -> Packed:
    """A segment from its file; `FormatError` if it is not this one."""
    path = folder / listed.file
    data = path.read_bytes()
    start = data.find(b"\n") + 1
    match formats.unseal(data[:start]):
        case {"space": str(name), "first": int(first), "last": int(last), "head": int(size)} if (
            name,
            first,
            last,
        ) == (space, listed.first, listed.last):
            head = data[start : start + size]
            if crc32(head) == listed.crc:
                return Packed(first, last, head, data[start + size :])
    raise formats.damaged(path)


def catalog_row(listed: Listed) -> bytes:
    """The catalog row of a segment."""
    return b"%012d %012d %s %08x\n" % (
        listed.first, listed.last, listed.name.encode(), listed.crc,
    )  # fmt: skip


def _listed_at(rows: bytes, at: int) -> Listed:
    first, last, name, crc = rows[at : at + _CATALOG_ROW].split()
    return Listed(int(first), int(last), name.decode(), int(crc, 16))


def names_rows(ids: Iterable[ObjectId]) -> bytes:
    """The rows that list shared objects."""
    return b"".join([b"%s\n" % id.hex().encode() for id in sorted(ids)])


def _sign(path: Path) -> _Signature:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _listed(folder: Path) -> Sequence[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def damaged(path: Path, place: int) -> Corrupt:
    """The error for a log that lost data, or is lost itself."""
    what = f"damaged from byte {place} on" if path.exists() else "gone"
    return Corrupt(
        f"the log {path} is {what}: operations that were acknowledged are missing. "
        "Restore the file from a copy; other spaces are not affected."
    )
