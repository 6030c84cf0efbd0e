"""Expiring values beside history in Postgres; see `schema` for their table."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from ropewalk.store.scratch import BestEffort, MemoryScratch, Scratch

if TYPE_CHECKING:
    from ropewalk.store.postgres.database import Database

_SCRATCH_BYTES: Final = 256 * 1024 * 1024
_TIDIED_EVERY: Final = 64  # Puts between two removals of expired values.


class PostgresScratch(Scratch):
    """Expiring values in the database, or in this process if the table is not available."""

    def __init__(self, database: Database, best_effort: BestEffort) -> None:
        self._database, self._best_effort = database, best_effort
        self._memory = MemoryScratch(time.monotonic)
        self._puts = 0

    @property
    def _instead(self) -> MemoryScratch | None:
        return self._memory if self._best_effort.unusable else None

    def get(self, key: str) -> bytes | None:
        """The value of a key, unless it has expired."""
        if self._instead is not None:
            return self._instead.get(key)
        rows = self._ask(
            "SELECT value FROM {s}.scratch WHERE key = %b::text "
            "AND (expires_at IS NULL OR expires_at > now())",
            key,
        )
        return rows[0][0] if rows else None

    def put(self, key: str, value: bytes, seconds: float | None = None) -> None:
        """Store a value for a number of seconds."""
        if self._instead is not None:
            self._instead.put(key, value, seconds)
            return
        self._ask(
            "INSERT INTO {s}.scratch (put_at, expires_at, key, value) VALUES "
            "(now(), now() + make_interval(secs => %b::float8), %b::text, %b::bytea) "
            "ON CONFLICT (key) DO UPDATE SET put_at = EXCLUDED.put_at, "
            "expires_at = EXCLUDED.expires_at, value = EXCLUDED.value",
            None if seconds is None else float(seconds),
            key,
            value,
        )
        if self._puts % _TIDIED_EVERY == 0:
            self._tidy()
        self._puts += 1

    def remove(self, key: str) -> None:
        """Remove a key."""
        if self._instead is not None:
            self._instead.remove(key)
            return
        self._ask("DELETE FROM {s}.scratch WHERE key = %b::text", key)

    def keys(self, prefix: str = "") -> list[str]:
        """The keys with a prefix."""
        if self._instead is not None:
            return self._instead.keys(prefix)
        rows = self._ask(
            "SELECT key FROM {s}.scratch WHERE starts_with(key, %b::text) "
            "AND (expires_at IS NULL OR expires_at > now()) ORDER BY key",
            prefix,
        )
        return [key for (key,) in rows]

    def _tidy(self) -> None:
        """Remove expired values, and the oldest ones beyond the limit."""
        self._ask("DELETE FROM {s}.scratch WHERE expires_at <= now()")
        self._ask(
            "DELETE FROM {s}.scratch s USING (SELECT key, sum(octet_length(value)) "
            "OVER (ORDER BY put_at DESC, key) AS held FROM {s}.scratch) t "
            "WHERE t.key = s.key AND t.held > %b::bigint",
            _SCRATCH_BYTES,
        )

    def _ask(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        nothing: list[tuple[Any, ...]] = []
        rows = self._database.rows
        return self._best_effort.attempt(lambda: rows(statement, *parameters), nothing)
