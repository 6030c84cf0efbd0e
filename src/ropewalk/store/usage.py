"""How many bytes a folder takes."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from pathlib import Path

from ropewalk.store._room import expect_room
from ropewalk.store.forking import freed_after_fork

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
