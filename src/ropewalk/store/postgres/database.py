"""A database as a store uses it: its schema, its connections, and its listener."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import psycopg

from ropewalk.errors import FormatError, InvalidInput, NewerFormat, NotAllowed, NotFound
from ropewalk.store.model import Durability, Header, decode_header, encode_header
from ropewalk.store.postgres.commit import spelled
from ropewalk.store.postgres.errors import (
    Again,
    Lost,
    translated,
    unavailable,
    wrong_isolation,
)
from ropewalk.store.postgres.listener import Notifier, PostgresPubSub, Watches
from ropewalk.store.postgres.pool import Connection, Pool, Row, Settings, read_dsn, split_dsn
from ropewalk.store.postgres.schema import (
    LAYOUT,
    check_schema,
    function_names,
    functions,
    quoted,
    tables,
)
from ropewalk.store.watch import WAKE, Watchers

_DEFAULT_SCHEMA = "ropewalk"


class Asked(NamedTuple):
    """What the caller of a constructor asks for; None where the URL may set it."""

    schema: str | None
    durability: Durability | None
    create: bool
    listen_dsn: str | None


class Database:
    """One schema of a database, and the resources open for it."""

    def __init__(self, dsn: str, asked: Asked, settings: Settings) -> None:
        conninfo, own = split_dsn(dsn)
        durability = asked.durability or own.get("durability") or "full"
        if durability not in ("full", "relaxed"):
            raise InvalidInput(f"durability is 'full' or 'relaxed', not {durability!r:.80}")
        self.durability: Durability = "full" if durability == "full" else "relaxed"
        self.schema = check_schema(asked.schema or own.get("schema") or _DEFAULT_SCHEMA)
        self.name = quoted(self.schema)
        self.pool = Pool(read_dsn(conninfo, self.schema), settings)
        self._statements: dict[str, tuple[bytes, tuple[str, ...]]] = {}
        self._begin = (self.durability == "full", str(max(int(1000 * settings.timeout), 1)))
        full = self.durability == "full"
        self.header, server = open_schema(self.pool, self.schema, asked.create, full)
        # Requests are sent as UTF-8. Databases with other encodings may be unable to store some
        # characters.
        self.encoding = "utf-8" if server in ("UTF8", "SQL_ASCII") else "ascii"
        listen = asked.listen_dsn and read_dsn(asked.listen_dsn, self.schema).conninfo
        self._watchers = Watchers()
        self._watches = Watches(self._watchers, self.name)
        prefix = self.header.store_id.hex()
        self.pubsub = PostgresPubSub(
            self.pool, prefix, conninfo=listen or None, watches=self._watches
        )
        """What listens, for who watches and for the buses of this store."""
        self.pubsub.attach(self._watchers)
        self._notifier = Notifier(self.pool, prefix)

    @property
    def shown(self) -> str:
        """The location, without secrets."""
        return self.pool.place.shown

    def rows(self, statement: str, *parameters: Any) -> list[Row]:
        """Run a read-only statement; `{s}` in it stands for the schema."""
        return self.pool.rows(statement.replace("{s}", self.name), parameters)

    def change(self, statement: str, *parameters: Any) -> list[Row]:
        """Run a statement that must not be repeated."""
        return self.pool.rows(statement.replace("{s}", self.name), parameters, repeatable=False)

    def ask(self, function: str, types: str, *parameters: Any) -> list[Row]:
        """Call a read-only function; `types` are those of its parameters."""
        return self._called(function, types, lambda: parameters)

    def call(
        self,
        function: str,
        types: str,
        parameters: Sequence[Any] | Callable[[], Sequence[Any]],
        *,
        repeatable: bool = True,
        durable: bool = True,
        patience: int | None = None,
    ) -> Row:
        """Call a function that changes something.

        It waits at most `patience` milliseconds for locks. A call that is not `durable` becomes
        durable with the next one that is. The parameters are computed for each attempt.
        """
        synced, longest = self._begin
        before = (synced and durable, longest if patience is None else str(patience))

        def given() -> Sequence[Any]:
            return (*before, *(parameters() if callable(parameters) else parameters))

        return self._called(function, f"boolean text {types}", given, repeatable=repeatable)[0]

    def _called(
        self,
        function: str,
        types: str,
        given: Callable[[], Sequence[Any]],
        *,
        repeatable: bool = True,
    ) -> list[Row]:
        known = self._statements.get(function)
        if known is None:
            kinds = tuple(types.split())
            places = ", ".join(f"${at}::{kind}" for at, kind in enumerate(kinds, 1))
            statement = f"SELECT * FROM {self.name}.{function}({places})"
            known = self._statements[function] = statement.encode(), kinds
        asked, kinds = known
        return self.pool.call(
            asked, lambda: list(map(spelled, kinds, given())), repeatable=repeatable
        )

    # Notifications.

    def changed(self, space: str, watched: bool) -> None:
        """Wake the watchers of a space: those here at once, and others if anyone listens."""
        self._watchers.wake(space)
        if watched:
            self._notifier.tell(space)

    def listen(self, space: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` when a space may have changed; returns the function that stops it."""
        remove = self._watchers.add(space, wake)
        self._watches.changed = True
        self.pubsub.touch(WAKE)

        def stop() -> None:
            remove()
            self.pubsub.touch(WAKE)

        return stop

    def close(self) -> None:
        """Close threads and connections."""
        self.pubsub.detach(self._watchers)
        self.pubsub.close()
        self._notifier.close()
        self.pool.close()


# The schema: created by hand, by a command or on first use.

_OLDEST = 130000


def open_schema(pool: Pool, schema: str, create: bool, full: bool) -> tuple[Header, str | None]:
    """The header of the store in a schema, created if needed, and the database's encoding.

    Raises what makes the schema unusable.
    """
    place, seconds = pool.place.shown, pool.settings.timeout
    try:
        with pool.connect() as connection, translated(place):
            connection.deadline = time.monotonic() + seconds
            _expect_version(connection, place)
            _expect_isolation(connection, place)
            if full:
                _expect_durable(connection, place)
            header = _found_or_made(connection, place, schema, create)
            return header, connection.info.parameter_status("server_encoding")
    except (Lost, Again) as error:
        raise unavailable(place, error.error, seconds) from error.error


def _found_or_made(connection: Connection, place: str, schema: str, create: bool) -> Header:
    found = _find(connection, place, schema)
    if found is None and not create:
        raise NotFound(f"{place} is not there. `ropewalk init --store URL` makes one.")
    if found is None:
        _create(connection, place, schema)
        found = _find(connection, place, schema)
    elif create:
        _complete(connection, schema)
    if found is None:
        raise FormatError(f"{place} has no header")
    return found


def _expect_durable(connection: Connection, place: str) -> None:
    """Raise `NotAllowed` unless the server syncs the commits it acknowledges."""
    wrong = [
        name
        for name in ("fsync", "full_page_writes")
        if connection.execute(f"SHOW {name}".encode()).fetchone() == ("off",)
    ]
    if wrong:
        raise NotAllowed(
            f"{place} cannot promise durability='full': {' and '.join(wrong)} is off on the "
            f"server. Set {' and '.join(f'{name} = on' for name in wrong)} in postgresql.conf, or "
            "ask for durability='relaxed'."
        )


def _expect_isolation(connection: Connection, place: str) -> None:
    ((level,),) = connection.execute("SHOW default_transaction_isolation").fetchall()
    if level != "read committed":
        raise wrong_isolation(place, f"default_transaction_isolation is {level}")


def _expect_version(connection: Connection, place: str) -> None:
    version = connection.info.server_version
    if version and version < _OLDEST:
        raise NotAllowed(f"{place} is Postgres {version // 10000}; Ropewalk needs 13 or newer.")


def _find(connection: Connection, place: str, schema: str) -> Header | None:
    """The header of the existing store; None if the schema is empty. Raises for anything else."""
    rows = connection.execute(
        "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s AND c.relkind IN ('r', 'p', 'v', 'm', 'f')",
        (schema,),
    ).fetchall()
    names = {name for (name,) in rows}
    if not names:
        return None
    row = None
    if {"facts", "spaces"} <= names:
        try:
            found = connection.execute(
                f"SELECT layout, header FROM {quoted(schema)}.facts".encode()
            )
            row = found.fetchone()
        except psycopg.errors.UndefinedColumn:
            row = None
    match row:
        case (int(layout), bytes(header)):
            pass
        case _:
            raise _of_something_else(schema, ", ".join(sorted(names)[:3]))
    if layout > LAYOUT:
        raise NewerFormat(
            f"the tables of {place} have version {layout}; this version of Ropewalk reads up to "
            f"{LAYOUT}. Install a newer Ropewalk."
        )
    if layout < LAYOUT:
        raise NotAllowed(
            f"{place} has format 1, from before the first release, which this version does not "
            "read: choose another schema with schema=, or drop this one to begin anew."
        )
    return decode_header(header)


def _of_something_else(schema: str, shown: str) -> FormatError:
    return FormatError(
        f"the schema {schema!r} holds something else ({shown}), and no whole store of Ropewalk. "
        "Nothing was changed: choose another with schema=, or, if a store was there, restore it "
        "from a copy."
    )


def _complete(connection: Connection, schema: str) -> None:
    """Create missing functions, for example those of a newer version."""
    rows = connection.execute(
        "SELECT p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace "
        "WHERE n.nspname = %s",
        (schema,),
    ).fetchall()
    if function_names() <= {name for (name,) in rows}:
        return
    name = quoted(schema)
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (f"ropewalk {name}",))
        connection.execute(functions(name).encode())


def _create(connection: Connection, place: str, schema: str) -> None:
    name = quoted(schema)
    header = encode_header(Header(os.urandom(16)))
    try:
        with connection.transaction():
            # Concurrent creators make one store. The lock ends with the transaction.
            connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (f"ropewalk {name}",))
            if _find(connection, place, schema) is not None:
                return
            there = connection.execute(
                "SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)
            ).fetchone()
            if there is None:  # CREATE IF NOT EXISTS would need rights we can do without.
                connection.execute(f"CREATE SCHEMA {name}".encode())
            connection.execute(tables(name).encode())
            connection.execute(
                f"INSERT INTO {name}.facts (layout, header) VALUES (%s, %s)".encode(),
                (LAYOUT, header),
            )
    except psycopg.errors.InsufficientPrivilege as error:
        raise NotAllowed(
            f"{place} is not there, and this user may not make it: "
            f"{error.diag.message_primary}. Ask for CREATE on the database, or let somebody who "
            "has it run what PostgresStore.sql() gives (`ropewalk sql`)."
        ) from error
    except (psycopg.errors.DuplicateTable, psycopg.errors.DuplicateObject) as error:
        raise _of_something_else(schema, error.diag.message_primary or "") from error
