"""Where a store is in a database: its schema, made by hand, by a command or on first use."""

from __future__ import annotations

import os
import time

import psycopg

from ropewalk.errors import FormatError, NewerFormat, NotAllowed, NotFound
from ropewalk.store.model import Header, decode_header, encode_header
from ropewalk.store.postgres.errors import (
    Again,
    Lost,
    translated,
    unavailable,
    wrong_isolation,
)
from ropewalk.store.postgres.pool import Connection, Pool
from ropewalk.store.postgres.schema import LAYOUT, function_names, functions, quoted, tables

_OLDEST = 130000


def open_schema(pool: Pool, schema: str, create: bool, full: bool) -> tuple[Header, str | None]:
    """The header of the store in a schema, which is made if need be; raises what is wrong.

    And the encoding of the database.
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
    """Raise `NotAllowed` unless the server syncs what it says that it stored."""
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
    """The header of the store that is there; None if nothing is. Raises for anything else."""
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
    """Make the functions again if some are missing, for example because they are new."""
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
            # Two that come at once make one store. The lock ends with the transaction.
            connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (f"ropewalk {name}",))
            if _find(connection, place, schema) is not None:
                return
            there = connection.execute(
                "SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)
            ).fetchone()
            if there is None:  # Asking for one that is there needs rights that we can do without.
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
