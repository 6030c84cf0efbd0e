"""The search index beside history in Postgres; see `schema` for its tables."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

from ropewalk.store.postgres.commit import bigints, texts
from ropewalk.store.postgres.schema import BLOCK_BITS, MANY
from ropewalk.store.scratch import BestEffort
from ropewalk.store.search_index import Change, MemoryTextIndex, TextIndex, Within

if TYPE_CHECKING:
    from ropewalk.store.postgres.database import Database

_MOST_BYTES: Final = 500_000
"""The maximum for all words of a position. Postgres takes a megabyte in one row."""

_LARGEST: Final = 2**63 - 1


class PostgresTextIndex(TextIndex):
    """An index in the database, or in this process if the tables are not available."""

    def __init__(self, database: Database, best_effort: BestEffort) -> None:
        self._database, self._best_effort = database, best_effort
        self._memory = MemoryTextIndex()

    @property
    def _instead(self) -> MemoryTextIndex | None:
        return self._memory if self._best_effort.unusable else None

    def state(self, scope: str) -> bytes | None:
        """The state a scope is indexed at."""
        found = self._best_effort.attempt(lambda: self._scope(scope), None)
        if self._instead is not None:
            return self._instead.state(scope)
        return None if found is None else found[1]

    def apply(
        self, scope: str, before: bytes | None, after: bytes, changes: Sequence[Change]
    ) -> bool:
        """Move an index from one state to another; False if it is not at the first."""
        if self._instead is not None:
            return self._instead.apply(scope, before, after, changes)
        return self._best_effort.attempt(lambda: self._apply(scope, before, after, changes), False)

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
        # A retry would find its own state and report that another writer was faster.
        (done,) = self._database.call("index_1", types, given, repeatable=False)
        return bool(done)

    def find(
        self, scope: str, state: bytes, prefixes: Sequence[str], within: Within
    ) -> list[int] | None:
        """Positions with words of these prefixes; None if the index is at another state."""
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
        """Remove a scope."""
        if self._instead is not None:
            self._instead.drop(scope)
            return
        self._ask(
            "WITH gone AS (DELETE FROM {s}.indexed WHERE name = %b::text RETURNING number) "
            "DELETE FROM {s}.words w USING gone WHERE w.scope = gone.number",
            (scope,),
            [],
        )

    def _scope(self, scope: str) -> tuple[int, bytes] | None:
        if self._instead is not None:
            return None
        asked = "SELECT number, state FROM {s}.indexed WHERE name = %b::text"
        rows = self._database.rows(asked, scope)
        return (rows[0][0], rows[0][1]) if rows else None

    def _ask(
        self, statement: str, parameters: Sequence[Any], otherwise: list[tuple[Any, ...]]
    ) -> list[tuple[Any, ...]]:
        rows = self._database.rows
        return self._best_effort.attempt(lambda: rows(statement, *parameters), otherwise)


def _lexemes(number: int, position: int, words: Collection[str] | None) -> str:
    """The words of a position as they are indexed; none if the position was deleted."""
    if not words:
        return ""
    begin = f"{number:x}g{position >> BLOCK_BITS:x}g"
    if sum(map(len, words)) * 4 + len(begin) * len(words) > _MOST_BYTES:
        return begin + MANY
    return " ".join([begin + word for word in words])
