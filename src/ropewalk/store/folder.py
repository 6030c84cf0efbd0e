"""A store in a folder of one machine: what the embedded store and plain files share.

What is written and what is synced decides what a power loss leaves. So engines in folders change
files only through a `Filesystem`, and a test can put one in its place that remembers every step
(`ropewalk.testing`). Reading needs no such care and goes past it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Unpack

from ropewalk.errors import (
    InvalidInput,
    NotAllowed,
    NotFound,
    RopewalkError,
    StoreFull,
    Unavailable,
)
from ropewalk.store.contract import StoreOptions
from ropewalk.store.log import LogStore
from ropewalk.store.model import Capabilities, Durability, Header
from ropewalk.store.quota import folder_bytes
from ropewalk.store.watch import Listeners

if TYPE_CHECKING:
    pass


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


NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}


@contextmanager
def system_errors(folder: Path) -> Iterator[None]:
    """Raise what the file system says inside, in the store of this folder, as Ropewalk's."""
    try:
        yield
    except OSError as error:
        raise from_system(folder, error) from error


def from_system(folder: Path, error: OSError) -> RopewalkError:
    """What an error of the file system means for a store."""
    reason = error.strerror or str(error)
    if error.errno in NO_ROOM:
        return store_full(folder, reason)
    if error.errno in FORBIDDEN:
        return forbidden(folder, reason)
    if error.errno == errno.ENAMETOOLONG:
        return InvalidInput(f"a store cannot be in {str(folder)!r:.80}...: the name is too long")
    if error.errno == errno.ENOENT:
        return Unavailable(
            f"the store in {folder} cannot be reached: {error.filename or folder} does not exist. "
            "Make the folder that it is to be in, or mount its disk."
        )
    return Unavailable(f"the store in {folder} cannot be reached now: {reason}")


def no_store(folder: Path) -> NotFound:
    """The error for opening a store that does not exist, without creating it."""
    return NotFound(f"there is no store in {folder}")


def too_busy(folder: Path, seconds: float) -> Unavailable:
    """The error for a writer that did not get the write lock in time."""
    return Unavailable(
        f"the store in {folder} was busy with other writers for {seconds:g} seconds. Nothing was "
        "written; try again."
    )


def store_full(folder: Path, reason: str) -> StoreFull:
    """The error for a full disk."""
    return StoreFull(
        f"there is no room for the store in {folder}: {reason}. Nothing was written, and what is "
        "there can be read; make room and try again."
    )


def forbidden(folder: Path, reason: str) -> NotAllowed:
    """The error for missing permissions on the folder."""
    return NotAllowed(
        f"the store in {folder} cannot be used: {reason}. It needs a folder, and files in it, "
        "that this program may write."
    )


class FolderStore(LogStore):
    """The base of stores in a folder, for several processes and threads at once."""

    capabilities = Capabilities(persists=True, shared=True, wakes=False)
    poll_seconds: ClassVar[float | None] = 0.02

    # What tests of crashes put their own in the place of.
    _disk: ClassVar[Filesystem] = Filesystem()

    _header: Header

    def __init__(
        self,
        path: str | PathLike[str],
        durability: Literal["full", "relaxed"],
        **options: Unpack[StoreOptions],
    ) -> None:
        super().__init__(**options)
        if durability not in ("full", "relaxed"):
            raise InvalidInput(f"durability is 'full' or 'relaxed', not {durability!r}")
        self.path = Path(path).absolute()
        self._durability: Durability = durability
        self._listeners = Listeners()

    @property
    def header(self) -> Header:
        """The store's id, format and algorithm."""
        return self._header

    @property
    def durability(self) -> Durability:
        """What an acknowledged commit survives."""
        return self._durability

    def _subscribe(self, space: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Wakes for what this store object commits; what others commit is looked for."""
        return self._listeners.add(space, wake)

    def _disk_bytes(self) -> int:
        return folder_bytes(self.path)
