"""The embedded store with a limit, by the name under which states look for it."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ropewalk.store.sqlite import SqliteStore

DEFAULT_SIZE_LIMIT = 1024**3


def Disk(  # noqa: N802 - a name for a class with another default, not a second class
    path: str | PathLike[str], size_limit: int | None = DEFAULT_SIZE_LIMIT
) -> SqliteStore:
    """Open the embedded store in a folder, with a limit of 1 GiB unless another is given.

    It is a `SqliteStore`, made if it is not there; `size_limit=None` is no limit. A commit
    beyond the limit is `StoreFull`, and nothing is written. Nothing that can be read is ever
    evicted: what is there stays, and can be read.
    """
    from ropewalk.store.sqlite import SqliteStore

    return SqliteStore(path, size_limit=size_limit)
