"""The cells of a bucket store in Postgres: `S3Store(url, refs="postgresql://...")`.

One table serves all stores of a database. Each value begins with a random nonce, so that a
statement that is retried after a lost answer recognises its own write.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from ropewalk.errors import InvalidInput, NotAllowed, NotFound
from ropewalk.store.contract import Store
from ropewalk.store.postgres import PostgresStore
from ropewalk.store.postgres.pool import Pool, Settings, read_dsn

_SCHEMA = "ropewalk_cells"
_NONCE = 8
_CONNECTIONS = 16
_LOCK = 0x686F6C64  # An arbitrary lock number: creating the table concurrently would fail.

_CREATE = f"""
DO $$ BEGIN
    PERFORM pg_advisory_xact_lock({_LOCK});
    CREATE SCHEMA IF NOT EXISTS {_SCHEMA};
    CREATE TABLE IF NOT EXISTS {_SCHEMA}.cells (
        store text NOT NULL, key text COLLATE "C" NOT NULL, value bytea NOT NULL,
        PRIMARY KEY (store, key)
    );
END $$
"""
_EXISTS = f"SELECT to_regclass('{_SCHEMA}.cells') IS NOT NULL"
_SETTINGS = "SELECT current_setting('fsync'), current_setting('synchronous_commit')"
_GET = f"SELECT key, value FROM {_SCHEMA}.cells WHERE store = %s AND key = ANY(%s)"  # noqa: S608
_KEYS = f"SELECT key FROM {_SCHEMA}.cells WHERE store = %s AND starts_with(key, %s)"  # noqa: S608
_MAKE = f"""
INSERT INTO {_SCHEMA}.cells AS old VALUES (%s, %s, %s)
ON CONFLICT (store, key) DO UPDATE SET value = excluded.value WHERE old.value = excluded.value
RETURNING 1
"""  # noqa: S608
_SWAP = f"""
UPDATE {_SCHEMA}.cells SET value = %s
WHERE store = %s AND key = %s AND (substring(value FROM {_NONCE + 1}) = %s OR value = %s)
RETURNING 1
"""  # noqa: S608


def connect(refs: str | Store, store: str, timeout: float) -> PostgresCells:
    """The cells of a store, by a URL or over the connections of a `PostgresStore`."""
    if isinstance(refs, PostgresStore):
        return PostgresCells(refs._database.pool, store, shared=True)
    if not isinstance(refs, str) or refs.partition("://")[0] not in ("postgresql", "postgres"):
        raise InvalidInput(
            "refs is the URL of a Postgres database, postgresql://..., or a PostgresStore on it"
        )
    settings = Settings(0, _CONNECTIONS, timeout, min(timeout, 5.0))
    return PostgresCells(Pool(read_dsn(refs, _SCHEMA), settings), store)


class PostgresCells:
    """Values by key, in a table of Postgres. Safe to share between threads."""

    def __init__(self, pool: Pool, store: str, *, shared: bool = False) -> None:
        self._pool, self._store, self._shared = pool, store, shared

    def open(self, create: bool) -> None:
        """Create the table if needed, or raise `NotFound`; check the server's durability."""
        self._pool.connect().close()  # Fail early if the URL is wrong.
        self._expect_durable()
        if self._pool.row(_EXISTS)[0]:
            return
        if not create:
            raise NotFound(f"{self.shown} does not exist: there is no store. Correct refs=.")
        self._pool.rows(_CREATE)

    @property
    def shown(self) -> str:
        """The location, without secrets."""
        return self._pool.place.shown

    def get(self, key: str) -> bytes | None:
        """The value of a key."""
        return self.get_many([key]).get(key)

    def get_many(self, keys: Sequence[str]) -> dict[str, bytes]:
        """The values of several keys, without missing ones."""
        found = self._pool.rows(_GET, (self._store, list(keys)))
        return {key: bytes(value)[_NONCE:] for key, value in found}

    def keys(self, prefix: str) -> list[str]:
        """The keys with a prefix."""
        return [key for (key,) in self._pool.rows(_KEYS, (self._store, prefix))]

    def swap(self, key: str, expected: bytes | None, value: bytes) -> bool:
        """Compare and set; None stands for an absent key."""
        fresh = os.urandom(_NONCE) + value
        if expected is None:
            return bool(self._pool.rows(_MAKE, (self._store, key, fresh)))
        return bool(self._pool.rows(_SWAP, (fresh, self._store, key, expected, fresh)))

    def close(self) -> None:
        """Close the connections, unless they are shared."""
        if not self._shared:
            self._pool.close()

    def _expect_durable(self) -> None:
        fsync, commit = self._pool.row(_SETTINGS)
        if fsync != "on" or commit == "off":
            raise NotAllowed(
                f"{self.shown} cannot promise durability='full': set fsync = on and "
                "synchronous_commit = on on the server."
            )
