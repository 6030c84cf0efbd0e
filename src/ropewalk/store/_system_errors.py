"""The one place where errors of the file system become Ropewalk's."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ropewalk.errors import (
    InvalidInput,
    NotAllowed,
    NotFound,
    RopewalkError,
    StoreFull,
    Unavailable,
)

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
    """What somebody is told who wants to use a store and not to make one."""
    return NotFound(f"there is no store in {folder}")


def too_busy(folder: Path, seconds: float) -> Unavailable:
    """What a writer is told that waited too long."""
    return Unavailable(
        f"the store in {folder} was busy with other writers for {seconds:g} seconds. Nothing was "
        "written; try again."
    )


def store_full(folder: Path, reason: str) -> StoreFull:
    """What a writer is told that finds no room."""
    return StoreFull(
        f"there is no room for the store in {folder}: {reason}. Nothing was written, and what is "
        "there can be read; make room and try again."
    )


def forbidden(folder: Path, reason: str) -> NotAllowed:
    """What somebody is told who may not use the folder."""
    return NotAllowed(
        f"the store in {folder} cannot be used: {reason}. It needs a folder, and files in it, "
        "that this program may write."
    )
