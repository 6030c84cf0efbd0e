"""Changing files: the few steps by which engines in folders write, in one place.

What is written and what is synced decides what a power loss leaves. So engines change
files only through a `Filesystem`, and a test can put one in its place that remembers every
step (`ropewalk.testing`). Reading needs no such care and goes past it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


class Filesystem:
    """The files of this machine. Errors are those of the system (`OSError`)."""

    def create(self, path: Path, data: bytes, *, sync: bool) -> None:
        """Make a new file. With `sync` its bytes survive a power loss, but not yet its name."""
        self._write(path, data, os.O_CREAT | os.O_EXCL, sync)

    def append(self, path: Path, data: bytes, *, sync: bool) -> None:
        """Add to the end of a file, which is made if it is not there."""
        self._write(path, data, os.O_CREAT | os.O_APPEND, sync)

    def truncate(self, path: Path, size: int) -> None:
        """Cut a file to its first bytes, durably."""
        opened = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.ftruncate(opened, size)
            os.fsync(opened)
        finally:
            os.close(opened)

    def rename(self, path: Path, target: Path) -> None:
        """Give a file another name, in the place of the file that had it."""
        os.replace(path, target)

    def remove(self, path: Path) -> None:
        """Remove a file."""
        os.unlink(path)

    def make_folder(self, path: Path) -> None:
        """Make a folder, unless it is there."""
        path.mkdir(exist_ok=True)

    def sync_folder(self, folder: Path) -> None:
        """Make the names in a folder survive a power loss."""
        if os.name == "nt":
            return  # Windows syncs names with their files, and opens no folders.
        opened = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)

    def discard(self, paths: Iterable[Path]) -> None:
        """Remove files that nobody needs; what cannot be removed is left, and harmless."""
        for path in paths:
            with suppress(OSError):
                self.remove(path)

    def _write(self, path: Path, data: bytes, how: int, sync: bool) -> None:
        opened = os.open(path, os.O_WRONLY | os.O_CLOEXEC | how, 0o666)
        try:
            remaining = memoryview(data)
            while remaining:
                remaining = remaining[os.write(opened, remaining) :]
            if sync:
                os.fsync(opened)
        finally:
            os.close(opened)
