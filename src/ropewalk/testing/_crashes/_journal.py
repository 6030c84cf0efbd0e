"""The changes to the files of a folder, step by step, and what records them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from os import PathLike
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypeVar

from ropewalk.errors import InvalidInput
from ropewalk.store import Store
from ropewalk.store.folder import Filesystem


class Made(NamedTuple):
    """A new, empty file or folder."""

    path: str
    folder: bool


class Wrote(NamedTuple):
    """Bytes in a file."""

    path: str
    offset: int
    data: bytes


class Cut(NamedTuple):
    """A file was truncated or extended."""

    path: str
    size: int


class Renamed(NamedTuple):
    """A file was renamed, replacing any file of that name."""

    path: str
    target: str


class Removed(NamedTuple):
    """The name of a file was removed."""

    path: str


class Synced(NamedTuple):
    """The bytes of a file are durable from here on, though not yet its name."""

    path: str


class SyncedNames(NamedTuple):
    """The names in a folder are durable from here on."""

    path: str


class Mark(NamedTuple):
    """A note of the test, such as an acknowledgement."""

    name: str
    value: object


Step: TypeAlias = Made | Wrote | Cut | Renamed | Removed | Synced | SyncedNames | Mark


class Journal:
    """The changes to the files of a folder, and the notes of a test in between.

    The content of the folder when the journal begins is durable. An engine is recorded by
    `recording`, or by a `RecordingFilesystem`; one that does neither calls these methods itself,
    each right after the step. `mark` records what the program knew at a moment. Paths are those of
    the real files.
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        self.folder = Path(folder).absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        # SQLite resolves symbolic links in what it opens, a Filesystem does not.
        self._roots = {str(self.folder), os.path.realpath(self.folder)}
        self.lock = threading.RLock()
        """Hold it over a step and its note, so that notes have the order of the steps."""
        self.refuse: Callable[[str], int] = _never
        """Asked before each step of SQLite: the code of the error to make of it, or 0."""
        self._steps: list[Step] = []
        self.start: dict[str, bytes | None] = dict(self._survived())
        """The files that were there at the beginning; None is a folder."""

    @property
    def steps(self) -> list[Step]:
        """The steps so far."""
        with self.lock:
            return list(self._steps)

    def mark(self, name: str, value: object = None) -> None:
        """Record what the program knows now. A crash state tells which notes precede it."""
        self._add(Mark(name, value))

    def made(self, path: str | PathLike[str]) -> None:
        """A new, empty file."""
        self._add(Made(self.within(path), False))

    def made_folder(self, path: str | PathLike[str]) -> None:
        """A new folder."""
        self._add(Made(self.within(path), True))

    def wrote(self, path: str | PathLike[str], offset: int, data: bytes) -> None:
        """Bytes in a file, which may extend it."""
        self._add(Wrote(self.within(path), offset, data))

    def cut(self, path: str | PathLike[str], size: int) -> None:
        """A new length of a file."""
        self._add(Cut(self.within(path), size))

    def renamed(self, path: str | PathLike[str], target: str | PathLike[str]) -> None:
        """A rename of a file, replacing any file of that name."""
        self._add(Renamed(self.within(path), self.within(target)))

    def removed(self, path: str | PathLike[str]) -> None:
        """A removal of a file."""
        self._add(Removed(self.within(path)))

    def synced(self, path: str | PathLike[str]) -> None:
        """The bytes of a file are durable now."""
        self._add(Synced(self.within(path)))

    def synced_folder(self, path: str | PathLike[str]) -> None:
        """The names in a folder are durable now."""
        self._add(SyncedNames(self.within(path)))

    def within(self, path: str | PathLike[str]) -> str:
        """A path relative to the folder, with slashes."""
        given = os.path.abspath(path)
        for root in self._roots:
            if given == root:
                return ""
            if given.startswith(root + os.sep):
                return given[len(root) + 1 :].replace(os.sep, "/")
        raise InvalidInput(f"{given} is not in {self.folder}, whose changes are recorded")

    def covers(self, path: str) -> bool:
        """Whether a file is in the folder."""
        return any(path.startswith(root + os.sep) for root in self._roots)

    def _add(self, step: Step) -> None:
        with self.lock:
            self._steps.append(step)

    def _survived(self) -> Iterator[tuple[str, bytes | None]]:
        for path in sorted(self.folder.rglob("*")):
            yield self.within(path), None if path.is_dir() else path.read_bytes()


def _never(step: str) -> int:
    return 0


S = TypeVar("S", bound=Store)


class RecordingFilesystem(Filesystem):
    """The local file system, with a journal of every change."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    def create(self, path: Path, data: bytes, *, sync: bool) -> None:
        with self.journal.lock:
            super().create(path, data, sync=sync)
            self.journal.made(path)
            self._wrote(path, 0, data, sync)

    def append(self, path: Path, data: bytes, *, sync: bool) -> None:
        with self.journal.lock:
            there = path.exists()
            end = path.stat().st_size if there else 0
            super().append(path, data, sync=sync)
            if not there:
                self.journal.made(path)
            self._wrote(path, end, data, sync)

    def truncate(self, path: Path, size: int) -> None:
        with self.journal.lock:
            super().truncate(path, size)
            self.journal.cut(path, size)
            self.journal.synced(path)

    def rename(self, path: Path, target: Path) -> None:
        with self.journal.lock:
            super().rename(path, target)
            self.journal.renamed(path, target)

    def remove(self, path: Path) -> None:
        with self.journal.lock:
            super().remove(path)
            self.journal.removed(path)

    def make_folder(self, path: Path) -> None:
        with self.journal.lock:
            there = path.is_dir()
            super().make_folder(path)
            if not there:
                self.journal.made_folder(path)

    def sync_folder(self, folder: Path) -> None:
        with self.journal.lock:
            super().sync_folder(folder)
            self.journal.synced_folder(folder)

    def _wrote(self, path: Path, offset: int, data: bytes, sync: bool) -> None:
        if data:
            self.journal.wrote(path, offset, bytes(data))
        if sync:
            self.journal.synced(path)


def recording(engine: type[S], journal: Journal, disk: Filesystem | None = None) -> type[S]:
    """A subclass of an engine that records all its file operations in a journal.

    For `SqliteStore`, `FileStore` and any engine that changes files through its class attribute
    `_disk`, a `Filesystem`. SQLite's own operations are recorded too. `disk` is a
    `RecordingFilesystem` by default.
    """
    if not hasattr(engine, "_disk"):
        raise InvalidInput(
            f"{engine.__name__} has no disk in its class attribute _disk. Change files through "
            "one, or note each step in the journal."
        )
    replaced: dict[str, object] = {"_disk": disk or RecordingFilesystem(journal)}
    if hasattr(engine, "_vfs"):
        from ropewalk.testing._crashes._vfs import record

        replaced["_vfs"] = record(journal)
    return type(f"Recorded{engine.__name__}", (engine,), replaced)
