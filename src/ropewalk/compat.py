"""Names that only the pages of the libraries before this one need.

    from agex import Versioned, Cache, Disk         ->  from ropewalk import Versioned
                                                        from ropewalk.compat import Cache, Disk
    from agex.state.kv import KVStore               ->  from ropewalk.compat import KVStore

All other names of theirs are in `ropewalk` and its packages.
"""

from __future__ import annotations

from os import PathLike

from ropewalk.store import CachedStore, KVStore, MemoryStore, SqliteStore

__all__ = ["Cache", "Disk", "KVStore", "Memory"]

Memory = MemoryStore
Cache = CachedStore


def Disk(  # noqa: N802 - a name for a class with another default, not a second class
    path: str | PathLike[str], size_limit: int | None = 1024**3
) -> SqliteStore:
    """Open the embedded store in a folder, with a limit of 1 GiB unless another is given.

    It is a `SqliteStore`, made if it is not there; `size_limit=None` is no limit. A commit
    beyond the limit is `StoreFull`, and nothing is written. Nothing that can be read is ever
    evicted: what is there stays, and can be read.
    """
    return SqliteStore(path, size_limit=size_limit)
