"""The write-ahead log of an embedded store, read before SQLite recovers it.

After a crash SQLite takes the first frame whose checksum is wrong for the end of its log, and
goes on without all that stands behind. That is right for a torn end, and wrong for damage. In
`full` the two can be told apart: a transaction is synced before the next one begins, so a
power loss tears the last one at most.

Damage is what cannot come from a crash, whatever of the unsynced bytes it kept:

- behind a bad frame, the end of one transaction and the beginning of another, whose checksums
  follow from each other. Frames that a killed or failed writer left behind have the salts of
  the log, too, but its transaction never ended, so no other was begun upon it;
- a header that no log of this database ever had; or one whose checksum is wrong above
  transactions that are not in the database, while only a log that has been brought into it
  gets another header.

What is in the last transaction, or in the last frame of the one before, is taken for torn.
The format is documented at https://www.sqlite.org/fileformat2.html#walformat.
"""

from __future__ import annotations

import os
import struct
import sys
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from ropewalk.errors import Corrupt
from ropewalk.store.sqlite.database import OPENING

_HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
_LITTLE, _BIG = 0x377F0682, 0x377F0683
_VERSION = 3007000
_ATTEMPTS = 3


def examine(database: Path) -> None:
    """Raise `Corrupt` if a database or its log has lost what was acknowledged.

    Only for a database that nobody ever wrote to without syncing. It may be in use by other
    processes: they change the files while these are read, so damage must look the same twice.
    """
    found = None
    for _ in range(_ATTEMPTS):
        before, found = found, _find_damage(database)
        if found is None:
            return
        if found == before:
            raise Corrupt(found.message)
    # Others are writing. They examined the log when they opened the database.


class _Damage(NamedTuple):
    message: str
    log: bytes


def _find_damage(database: Path) -> _Damage | None:
    wal = log_of(database)
    with OPENING, suppress(FileNotFoundError):
        if _is_open_here(database):
            return None
        log = wal.read_bytes() if wal.exists() else b""
        with open(database, "rb", buffering=0) as file:
            head, size = file.read(100), os.fstat(file.fileno()).st_size
        if len(head) < 100 or not head.startswith(b"SQLite format 3\0"):
            return None  # SQLite says what is wrong with it.
        if len(log) <= _HEADER.size:
            return _find_truncation(database, head, size)
        place = _Log(log, database, _page_size(head)).damaged_from()
        if place is not None:
            return _Damage(
                f"the log {wal} is damaged from byte {place} on, and commits that were "
                "acknowledged stand behind that. Nothing was changed: restore the file from a "
                f"copy, or cut it to {place} bytes to go on without them.",
                log,
            )
    return None


def _find_truncation(database: Path, head: bytes, size: int) -> _Damage | None:
    """A database without a log must have all the pages that its header says."""
    expected = _page_size(head) * int.from_bytes(head[28:32], "big")
    if size >= expected or _has_journal(database):
        return None
    return _Damage(
        f"the database {database} was cut: it should have {expected} bytes and has {size}. "
        "Nothing was changed: restore it from a copy.",
        b"",
    )


def _has_journal(database: Path) -> bool:
    """Whether SQLite will roll back what a crash cut short: a database is made without a log."""
    journal = database.with_name(database.name + "-journal")
    return journal.exists() and journal.stat().st_size > 0


def _page_size(head: bytes) -> int:
    size = int.from_bytes(head[16:18], "big")
    return 65536 if size == 1 else size


def has_frames(database: Path) -> bool:
    """Whether there is a log beside a database that holds more than its header."""
    wal = log_of(database)
    return wal.exists() and wal.stat().st_size > _HEADER.size


def log_of(database: Path) -> Path:
    """The file of the log."""
    return database.with_name(database.name + "-wal")


class _Log:
    def __init__(self, data: bytes, database: Path, page_size: int) -> None:
        self._data, self._database, self._page_size = data, database, page_size
        magic, version, size, _, *salts, s0, s1 = _HEADER.unpack_from(data)
        self._start: tuple[int, ...] = (s0, s1)
        self._salts: tuple[int, ...] = tuple(salts)
        self._known = magic in (_LITTLE, _BIG) and version == _VERSION and size == page_size
        self._order = ">" if magic == _BIG else "<"

    def damaged_from(self) -> int | None:
        """The offset of the first damage; None if a crash may have left the log so."""
        if not self._known:
            return 0
        if self._checksum((0, 0), self._data[:24]) != self._start:
            return 0 if self._has_lost_commits() else None
        bad = self._sound_from(0, self._start)
        for end in range(bad + 1, self._count - 1):
            # The size of the database is 0 except in the frame that ends a transaction.
            if self._heads[end][1] and self._follows(end) and self._follows(end + 1):
                return _HEADER.size + bad * self._step
        return None

    def _has_lost_commits(self) -> bool:
        """Whether the frames behind a bad header hold commits that the database does not."""
        if not self._count:
            return False
        self._salts = self._heads[0][2:4]
        sound = self._sound_from(1, self._heads[0][4:])
        ends = [at for at in range(1, sound) if self._heads[at][1]]
        if len(ends) < 2:
            return False
        end, last = ends[-2:]
        pages = self._heads[last][1]
        newest = {self._heads[at][0]: at for at in range(end + 1)}
        unsure = {self._heads[at][0] for at in range(end + 1, last + 1)}
        with open(self._database, "rb", buffering=0) as file:
            for page, at in newest.items():
                if page <= pages and page not in unsure:
                    file.seek((page - 1) * self._page_size)
                    if file.read(self._page_size) != self._page(at):
                        return True
        return False

    def _sound_from(self, first: int, before: tuple[int, ...]) -> int:
        """The first frame from here on that does not follow from the one before."""
        for at in range(first, self._count):
            if not self._is_sound(at, before):
                return at
            before = self._heads[at][4:]
        return self._count

    def _follows(self, at: int) -> bool:
        before = self._heads[at - 1]
        return before[2:4] == self._salts and self._is_sound(at, before[4:])

    def _is_sound(self, at: int, before: tuple[int, ...]) -> bool:
        head = self._heads[at]
        if head[2:4] != self._salts:
            return False
        place = _HEADER.size + at * self._step
        return head[4:] == self._checksum(before, self._data[place : place + 8], self._page(at))

    def _page(self, at: int) -> bytes:
        place = _HEADER.size + at * self._step + _FRAME.size
        return self._data[place : place + self._page_size]

    @property
    def _step(self) -> int:
        return _FRAME.size + self._page_size

    @property
    def _count(self) -> int:
        return (len(self._data) - _HEADER.size) // self._step

    @cached_property
    def _heads(self) -> list[tuple[int, ...]]:
        """Of each frame: page number, size of the database in pages, salts, checksum."""
        return [
            _FRAME.unpack_from(self._data, _HEADER.size + at * self._step)
            for at in range(self._count)
        ]

    def _checksum(self, before: tuple[int, ...], *parts: bytes) -> tuple[int, int]:
        s0, s1 = before
        for part in parts:
            words = iter(struct.unpack(f"{self._order}{len(part) // 4}I", part))
            for one, other in zip(words, words, strict=True):
                s0 = (s0 + one + s1) & 0xFFFFFFFF
                s1 = (s1 + other + s0) & 0xFFFFFFFF
        return s0, s1


def _is_open_here(database: Path) -> bool:
    """Whether this process has the database open.

    Then it was examined already; and to open and close the file once more would release the
    locks that SQLite holds on it.
    """
    if sys.platform == "win32":
        return False
    found = os.stat(database)
    for number in os.listdir("/dev/fd"):
        with suppress(OSError, ValueError):
            one = os.fstat(int(number))
            if (one.st_dev, one.st_ino) == (found.st_dev, found.st_ino):
                return True
    return False
