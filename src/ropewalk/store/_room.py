"""Room in a store that has a size limit: what nothing reaches is collected first.

If that frees nothing, what only an undo would bring back goes too: a commit that can be
kept is worth more.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ropewalk.errors import RopewalkError, StoreFull
from ropewalk.store.forking import freed_after_fork

if TYPE_CHECKING:
    from ropewalk.store.contract import Store


class Room:
    """Makes room in a full store, as often as that can help. Safe to share between threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = freed_after_fork(threading.Lock())
        self._in_vain: dict[str, int] | None = None
        """The last operation of each space when a collection last freed nothing."""

    def make(self) -> bool:
        """Collect, unless nothing was done since that was in vain; whether bytes were freed."""
        store = self._store
        if store.size_limit is None:
            return False
        with self._lock:
            try:
                now = {space: store.view(space).sequence for space in store.spaces()}
                if now == self._in_vain:
                    return False
                before = store._disk_bytes() or 0
                freed = store.gc().freed_bytes
                # What was packed takes less room, too.
                freed = freed or max(before - (store._disk_bytes() or 0), 0)
                freed = freed or store.gc(recent=1).freed_bytes
            except RopewalkError:
                return False  # The caller is told that the store is full, which is true.
            self._in_vain = None if freed else now
            return freed > 0


def expect_room(used: int, new: int, limit: int | None) -> None:
    """Raise `StoreFull` if so many new bytes would take a store over its limit."""
    if limit is not None and used + new > limit:
        raise StoreFull(
            f"the store takes {used} bytes and {new} more would take it over its size_limit of "
            f"{limit}. Nothing was written, and what is there can be read. Remove branches or "
            "pins that are no longer needed, or raise the limit."
        )
