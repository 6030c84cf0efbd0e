"""Small values beside an embedded store; see `side` for their table."""

from __future__ import annotations

import sqlite3
import time
from typing import Final

from ropewalk.store.scratch import MemoryScratch, Scratch
from ropewalk.store.sqlite.side import SideFile

_MOST_BYTES: Final = 64 * 1024 * 1024
_TIDIED_EVERY: Final = 64  # Puts, between two looks at what is over.


class SqliteScratch(Scratch):
    """Small values in the file beside the store, or in this process if there is none."""

    def __init__(self, side: SideFile) -> None:
        self._side = side
        self._memory = MemoryScratch(time.monotonic)
        self._puts = 0

    @property
    def _instead(self) -> MemoryScratch | None:
        return self._memory if self._side.unusable else None

    def get(self, key: str) -> bytes | None:
        """The value of a key, if it is there and lives."""
        if self._instead is not None:
            return self._instead.get(key)
        row = self._side.read(
            lambda db: db.execute(
                "SELECT value FROM scratch WHERE key = ? AND (until IS NULL OR until > ?)",
                (key, time.time()),
            ).fetchone(),
            None,
        )
        return None if row is None or not isinstance(row[0], bytes) else row[0]

    def put(self, key: str, value: bytes, seconds: float | None = None) -> None:
        """Keep a value, perhaps for some seconds."""
        if self._instead is not None:
            self._instead.put(key, value, seconds)
            return
        until = None if seconds is None else time.time() + seconds
        tidy = self._puts % _TIDIED_EVERY == 0
        self._puts += 1

        def work(db: sqlite3.Connection) -> None:
            db.execute(
                "INSERT OR REPLACE INTO scratch (key, value, until) VALUES (?, ?, ?)",
                (key, value, until),
            )
            if tidy:
                _tidy(db)

        self._side.write(work, None)

    def remove(self, key: str) -> None:
        """Remove a value."""
        if self._instead is not None:
            self._instead.remove(key)
            return
        self._side.write(
            lambda db: db.execute("DELETE FROM scratch WHERE key = ?", (key,)).rowcount, 0
        )

    def keys(self, prefix: str = "") -> list[str]:
        """The keys that begin so and live."""
        if self._instead is not None:
            return self._instead.keys(prefix)
        rows: list[tuple[str]] = self._side.read(
            lambda db: db.execute(
                "SELECT key FROM scratch WHERE substr(key, 1, ?) = ? "
                "AND (until IS NULL OR until > ?) ORDER BY key",
                (len(prefix), prefix, time.time()),
            ).fetchall(),
            [],
        )
        return [key for (key,) in rows]


def _tidy(db: sqlite3.Connection) -> None:
    """Remove what is over, and what was put first if it is too much."""
    db.execute("DELETE FROM scratch WHERE until <= ?", (time.time(),))
    held = db.execute("SELECT coalesce(sum(length(value)), 0) FROM scratch").fetchone()[0]
    while held > _MOST_BYTES:
        number, size = db.execute(
            "SELECT number, length(value) FROM scratch ORDER BY number LIMIT 1"
        ).fetchone()
        db.execute("DELETE FROM scratch WHERE number = ?", (number,))
        held -= size
