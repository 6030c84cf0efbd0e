"""A store's size limit: how many bytes it takes, and room that is made when it is full."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ropewalk.errors import RopewalkError, StoreFull
from ropewalk.store.forking import freed_after_fork

if TYPE_CHECKING:
    from ropewalk.store.contract import Store


_FRESH = 10.0  # Seconds for which a measured figure is trusted.
_RARELY = 50  # Measuring may take one such part of the time.


class Usage:
    """Keeps a store within a number of bytes.

    The figure is measured, then counted on with what this store object writes. What others
    write meanwhile is seen when it is measured again. A commit is refused only after a
    fresh measurement.
    """

    def __init__(self, folder: Path, limit: int | None) -> None:
        self._folder, self._limit = folder, limit
        self._lock = freed_after_fork(threading.Lock())
        self._used = 0
        self._until = 0.0

    def take(self, size: int) -> None:
        """Count bytes that are about to be written; `StoreFull` if they do not fit."""
        if self._limit is None:
            return
        with self._lock:
            if time.monotonic() >= self._until or self._used + size > self._limit:
                self._measure()
            expect_room(self._used, size, self._limit)
            self._used += size

    def _measure(self) -> None:
        begun = time.monotonic()
        self._used = folder_bytes(self._folder)
        ended = time.monotonic()
        self._until = ended + max(_FRESH, _RARELY * (ended - begun))


def folder_bytes(folder: Path) -> int:
    """The bytes of all files in a folder and below it."""
    total = 0
    waiting = [os.fspath(folder)]
    while waiting:
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(waiting.pop()) as inside:
            for entry in inside:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                else:
                    with suppress(FileNotFoundError):
                        total += entry.stat(follow_symlinks=False).st_size
    return total


class Quota:
    """Makes room in a full store, as often as that can help. Safe to share between threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = freed_after_fork(threading.Lock())
        self._in_vain: dict[str, int] | None = None
        """The last operation of each space when a collection last freed nothing."""

    def make(self) -> bool:
        """Run a collection, unless the last one freed nothing and nothing was written since.

        Returns whether bytes were freed.
        """
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
                return False  # The caller raises `StoreFull`, which is true.
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
