"""What stands beside history in Postgres; see `_postgres_beside_sql` for its tables."""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

from ropewalk.store._aside import Change, Scratch, TextIndex, Within
from ropewalk.store._aside_memory import MemoryScratch, MemoryTextIndex
from ropewalk.store._aside_trying import Trying
from ropewalk.store._postgres_arrays import bigints, texts
from ropewalk.store._postgres_beside_sql import BLOCK_BITS, MANY

if TYPE_CHECKING:
    from ropewalk.store._postgres_database import Database

_MOST_BYTES: Final = 500_000
"""Of all words of a position. Postgres takes a megabyte in one row."""

_LARGEST: Final = 2**63 - 1
_SCRATCH_BYTES: Final = 256 * 1024 * 1024
_TIDIED_EVERY: Final = 64  # Puts, between two looks at what is over.


class Beside(Trying):
    """The tables beside history, and whether they can be used."""

    def __init__(self, database: Database) -> None:
        super().__init__(_unspeakable)
        self.database = database


def _unspeakable() -> tuple[type[Exception], ...]:
    from ropewalk.store._postgres_errors import DATA_ERRORS  # Brings the driver.

    return DATA_ERRORS


class PostgresTextIndex(TextIndex):
    """An index in the database, or in this process if there can be none."""

    def __init__(self, beside: Beside) -> None:
        self._beside = beside
        self._memory = MemoryTextIndex()

    @property
    def _instead(self) -> MemoryTextIndex | None:
        return self._memory if self._beside.unusable else None

    def state(self, scope: str) -> bytes | None:
        found = self._beside.tried(lambda: self._scope(scope), None)
        if self._instead is not None:
            return self._instead.state(scope)
        return None if found is None else found[1]

    def apply(
        self, scope: str, before: bytes | None, after: bytes, changes: Sequence[Change]
    ) -> bool:
        if self._instead is not None:
            return self._instead.apply(scope, before, after, changes)
        return self._beside.tried(lambda: self._apply(scope, before, after, changes), False)

    def _apply(
        self, scope: str, before: bytes | None, after: bytes, changes: Sequence[Change]
    ) -> bool:
        number = secrets.randbits(48)
        if before is not None:
            found = self._scope(scope)
            if found is None or found[1] != before:
                return False
            number = found[0]
        said = [(at, _lexemes(number, at, words)) for at, words in changes]
        if any(at > _LARGEST for at, _ in said):
            return False
        positions = bigints([at for at, _ in said])
        given = (scope, number, before, after, positions, texts([words for _, words in said]))
        types = "text bigint bytea bytea bigint[] text[]"
        # Sent again, it would find its own state and say that somebody else was faster.
        (done,) = self._beside.database.call("index_1", types, given, repeatable=False)
        return bool(done)

    def find(
        self, scope: str, state: bytes, prefixes: Sequence[str], within: Within
    ) -> list[int] | None:
        if self._instead is not None:
            return self._instead.find(scope, state, prefixes, within)
        after = -1 if within.after is None else within.after
        before = _LARGEST if within.before is None else within.before
        asked = (scope, state, texts(prefixes), after, before, within.newest_first, within.limit)
        rows = self._ask(
            "SELECT {s}.find_1(%b::text, %b::bytea, %b::text[], %b::bigint, %b::bigint, "
            "%b::boolean, %b::bigint)",
            asked,
            [(None,)],
        )
        found: list[int] | None = rows[0][0]
        return None if found is None else sorted(found, reverse=within.newest_first)

    def drop(self, scope: str) -> None:
        if self._instead is not None:
            self._instead.drop(scope)
            return
        self._beside.tried(lambda: self._beside.database.call("unindex_1", "text", (scope,)), ())

    def _scope(self, scope: str) -> tuple[int, bytes] | None:
        if self._instead is not None:
            return None
        asked = "SELECT number, state FROM {s}.indexed WHERE name = %b::text"
        rows = self._beside.database.rows(asked, (scope,), prepare=True)
        return (rows[0][0], rows[0][1]) if rows else None

    def _ask(
        self, statement: str, parameters: Sequence[Any], otherwise: list[tuple[Any, ...]]
    ) -> list[tuple[Any, ...]]:
        rows = self._beside.database.rows
        return self._beside.tried(lambda: rows(statement, parameters, prepare=True), otherwise)


def _lexemes(number: int, position: int, words: Collection[str] | None) -> str:
    """The words of a position as they are indexed; nothing if it is gone."""
    if not words:
        return ""
    begin = f"{number:x}g{position >> BLOCK_BITS:x}g"
    if sum(map(len, words)) * 4 + len(begin) * len(words) > _MOST_BYTES:
        return begin + MANY
    return " ".join([begin + word for word in words])


class PostgresScratch(Scratch):
    """Small values in the database, or in this process if they cannot be there."""

    def __init__(self, beside: Beside) -> None:
        self._beside = beside
        self._memory = MemoryScratch(time.monotonic)
        self._puts = 0

    @property
    def _instead(self) -> MemoryScratch | None:
        return self._memory if self._beside.unusable else None

    def get(self, key: str) -> bytes | None:
        if self._instead is not None:
            return self._instead.get(key)
        rows = self._ask(
            "SELECT value FROM {s}.scratch WHERE key = %b::text "
            "AND (expires_at IS NULL OR expires_at > now())",
            key,
        )
        return rows[0][0] if rows else None

    def put(self, key: str, value: bytes, seconds: float | None = None) -> None:
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
        if self._instead is not None:
            self._instead.remove(key)
            return
        self._ask("DELETE FROM {s}.scratch WHERE key = %b::text", key)

    def keys(self, prefix: str = "") -> list[str]:
        if self._instead is not None:
            return self._instead.keys(prefix)
        rows = self._ask(
            "SELECT key FROM {s}.scratch WHERE starts_with(key, %b::text) "
            "AND (expires_at IS NULL OR expires_at > now()) ORDER BY key",
            prefix,
        )
        return [key for (key,) in rows]

    def _tidy(self) -> None:
        """Remove what is over, and what was put first if it is too much."""
        self._ask("DELETE FROM {s}.scratch WHERE expires_at <= now()")
        self._ask(
            "DELETE FROM {s}.scratch s USING (SELECT key, sum(octet_length(value)) "
            "OVER (ORDER BY put_at DESC, key) AS held FROM {s}.scratch) t "
            "WHERE t.key = s.key AND t.held > %b::bigint",
            _SCRATCH_BYTES,
        )

    def _ask(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        nothing: list[tuple[Any, ...]] = []
        rows = self._beside.database.rows
        return self._beside.tried(lambda: rows(statement, parameters, prepare=True), nothing)
