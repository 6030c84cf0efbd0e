"""File systems and engines that record their operations."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from ropewalk.errors import InvalidInput
from ropewalk.store import Store
from ropewalk.store.folder import Filesystem
from ropewalk.testing._crashes._journal import Journal

S = TypeVar("S", bound=Store)


class RecordingFilesystem(Filesystem):
    """The local file system, with a journal of every change."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    def create(self, path: Path, data: bytes, *, sync: bool) -> None:
        """Create a file, and record it."""
        with self.journal.lock:
            super().create(path, data, sync=sync)
            self.journal.made(path)
            self._wrote(path, 0, data, sync)

    def append(self, path: Path, data: bytes, *, sync: bool) -> None:
        """Append to a file, and record it."""
        with self.journal.lock:
            there = path.exists()
            end = path.stat().st_size if there else 0
            super().append(path, data, sync=sync)
            if not there:
                self.journal.made(path)
            self._wrote(path, end, data, sync)

    def truncate(self, path: Path, size: int) -> None:
        """Truncate a file, and record it."""
        with self.journal.lock:
            super().truncate(path, size)
            self.journal.cut(path, size)
            self.journal.synced(path)

    def rename(self, path: Path, target: Path) -> None:
        """Rename a file, and record it."""
        with self.journal.lock:
            super().rename(path, target)
            self.journal.renamed(path, target)

    def remove(self, path: Path) -> None:
        """Remove a file, and record it."""
        with self.journal.lock:
            super().remove(path)
            self.journal.removed(path)

    def make_folder(self, path: Path) -> None:
        """Create a folder, and record it if it is new."""
        with self.journal.lock:
            there = path.is_dir()
            super().make_folder(path)
            if not there:
                self.journal.made_folder(path)

    def sync_folder(self, folder: Path) -> None:
        """Sync the names in a folder, and record it."""
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
