"""Maps the errors of Postgres and its driver to Ropewalk's, here and nowhere else.

A message names the setting to look at. It never contains a password: the driver's complaint about
an unreadable connection string is left out, because it quotes the string.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from ropewalk.errors import (
    Corrupt,
    FormatError,
    InvalidInput,
    NotAllowed,
    NotFound,
    RopewalkError,
    StoreFull,
    Unavailable,
)

DATA_ERRORS: tuple[type[Exception], ...] = (psycopg.DataError,)
"""Values the database cannot hold, for example text outside its encoding."""

_GONE = ("08", "57P01", "57P02", "57P03", "57P05")
_BUSY = ("40001", "40P01", "23505")  # The last one: two sessions created the same object at once.
_UNPREPARED = ("26000", "42P05")

# libpq reports no code for a refused connection, only the server's words, possibly localized.
# Unrecognised ones are passed on as they are.
_REFUSED = (
    ("does not exist", "database ", NotFound, "Check the name at the end of the URL, or create it"),
    ("does not exist", "role ", NotAllowed, "Check the user in the URL"),
    ("password", "", NotAllowed, "Check the user and the password in the URL"),
    ("authentication failed", "", NotAllowed, "Check the user and the password in the URL"),
    ("no pg_hba.conf entry", "", NotAllowed, "Ask for this host, user and database in pg_hba.conf"),
    ("permission denied", "", NotAllowed, "Ask for the right to connect (GRANT CONNECT)"),
    ("ssl", "", NotAllowed, "Check sslmode and the certificates in the URL"),
    ("no such database", "", NotFound, "Check the name at the end of the URL"),
    ("no such user", "", NotAllowed, "Check the user in the URL"),
)


class TimedOut(psycopg.OperationalError):
    """A call exceeded its deadline. The connection is no longer usable."""


class Lost(Exception):
    """The connection ended before the answer came: the statement may have been executed."""

    def __init__(self, error: psycopg.Error) -> None:
        super().__init__(str(error))
        self.error = error


class AllLent(Lost):
    """All connections of the pool are in use: the server is there."""


class Again(Exception):
    """The server rolled back because of concurrent transactions: retry."""

    def __init__(self, error: psycopg.Error) -> None:
        super().__init__(str(error))
        self.error = error


class Unprepared(Again):
    """A prepared statement is missing, or belongs to another session: nothing was executed."""


@contextmanager
def translated(place: str) -> Iterator[None]:
    """Translate the errors of statements inside to Ropewalk's, naming the store's location.

    `Lost` and `Again` are for callers that can retry.
    """
    try:
        yield
    except psycopg.Error as error:
        known = from_statement(place, error)
        if known is None:
            raise  # A bug of ours, which must not look like the server's.
        raise known from error


def from_statement(place: str, error: psycopg.Error) -> Exception | None:
    """The error for a failed statement; None if it is a bug of ours."""
    state = error.sqlstate or ""
    if isinstance(error, TimedOut):
        return Lost(error)
    if state.startswith(_GONE) or (not state and _is_network(error)):
        return Lost(error)
    if state in _UNPREPARED:
        return Unprepared(error)
    if state.startswith(_BUSY):
        return Again(error)
    return _by_state(place, state, said(error))


def from_connecting(place: str, error: psycopg.Error) -> RopewalkError:
    """The error for a connection that could not be made."""
    state, reason = error.sqlstate or "", said(error)
    if state == "3D000":
        return NotFound(f"{_cannot(place)}: {reason}. Check the name at the end of the URL.")
    if state.startswith("28"):
        return NotAllowed(f"{_cannot(place)}: {reason}. Check the user and the password.")
    low = reason.lower()
    for words, also, kind, advice in _REFUSED:
        if words in low and also in low and not low.startswith("connection timeout"):
            return kind(f"{_cannot(place)}: {reason}. {advice}.")
    if "too many" in low or "remaining connection slots" in low or state == "53300":
        return Unavailable(
            f"{_cannot(place)}: {reason}. Lower max_connections of this store, raise that of the "
            "server, or put PgBouncer between."
        )
    return Unavailable(
        f"{_cannot(place)}: {reason}. Check host and port in the URL, and that the server runs."
    )


def bad_dsn(unknown: str | None = None) -> InvalidInput:
    """The error for a connection string that is not valid."""
    reason = "the dsn is none that Postgres reads"
    if unknown is not None:
        reason = (
            f"there is no option {unknown!r:.40} in a dsn: Ropewalk's own are schema and "
            "durability, the others are those of Postgres, such as sslmode"
        )
    return InvalidInput(
        f"{reason}. Write postgresql://user:password@host:5432/database, perhaps with "
        "?option=value; characters such as @ : / % in a password are spelled %40 %3A %2F %25."
    )


def wrong_isolation(place: str, reason: str) -> NotAllowed:
    """The error for an isolation level other than read committed."""
    return NotAllowed(
        f"{place} cannot be written: {reason}. Ropewalk needs read committed, Postgres' own "
        "default: look at default_transaction_isolation of the server, the database, the user "
        "and the URL."
    )


def unavailable(place: str, error: Exception, seconds: float) -> Unavailable:
    """The error for a call that got no answer within its timeout."""
    return Unavailable(
        f"{place} did not answer within {seconds:g} seconds: {said(error)}. If this was a commit, "
        "send it again with the same write id. Check that the server runs; `timeout` says how "
        "long to wait."
    )


def said(error: Exception) -> str:
    """The message of a driver error, on one line."""
    primary = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    text = " ".join((primary or str(error)).split())
    return text.rstrip(".") or type(error).__name__


def _is_network(error: psycopg.Error) -> bool:
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)


def _by_state(place: str, state: str, reason: str) -> RopewalkError | None:
    match state[:2], state:
        case "53", "53100" | "53000":
            return StoreFull(
                f"{place} has no room: {reason}. Nothing was written, and what is there can be "
                "read; make room on the server's disk and try again."
            )
        case _, "42501":
            return NotAllowed(
                f"{place} may not be used so: {reason}. Ask for USAGE on the schema, for SELECT, "
                "INSERT, UPDATE and DELETE on its tables, and for EXECUTE on its functions."
            )
        case _, "HF001":
            return wrong_isolation(place, reason)
        case "25", "25006":
            return NotAllowed(
                f"{place} cannot be written: {reason}. Use the address of the primary server, and "
                "look at default_transaction_read_only."
            )
        case _, "42P01" | "42883" | "3F000" | "42703" | "42704":
            return FormatError(
                f"{place} lacks what belongs to a store: {reason}. Run `ropewalk init --store "
                "URL`, or restore the schema from a copy."
            )
        case _, "55P03" | "57014":
            return Unavailable(
                f"{place} was busy with others for too long: {reason}. Nothing was written; try "
                "again."
            )
        case _, "RW001":
            return Corrupt(
                f"{reason}, in {place}. Restore the store from a copy; other spaces are not "
                "affected."
            )
        case "XX", "XX001" | "XX002":
            return Corrupt(f"the database of {place} is damaged: {reason}. Restore it from a copy.")
        case "53" | "54" | "55" | "57" | "58" | "XX" | "25" | "0A", _:
            return Unavailable(f"{place} cannot do this now: {reason}. Try again.")
    return None


def _cannot(place: str) -> str:
    return f"{place} cannot be reached"
