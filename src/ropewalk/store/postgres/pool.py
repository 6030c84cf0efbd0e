"""A small pool of connections to Postgres: every call has a deadline, and none stays in a
transaction.

A connection is lent for one statement, which is its own transaction. This works behind PgBouncer
in transaction mode, because a session keeps no state. Statements are prepared only on direct
connections, and only function calls, whose plans do not become outdated.
"""

from __future__ import annotations

import logging
import os
import random
import select
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple, TypeVar

import psycopg
from psycopg import conninfo
from psycopg.abc import AdaptContext, PQGen
from psycopg.adapt import Dumper
from psycopg.pq import ExecStatus, Format
from psycopg.pq.abc import PGresult
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from ropewalk.errors import RopewalkError, StoreClosed
from ropewalk.store.forking import freed_after_fork
from ropewalk.store.postgres.commit import Array
from ropewalk.store.postgres.errors import (
    Again,
    AllLent,
    Lost,
    TimedOut,
    Unprepared,
    bad_dsn,
    from_connecting,
    translated,
    unavailable,
)
from ropewalk.store.retry import tries_for

R = TypeVar("R")
Row = tuple[Any, ...]

_FIRST_PAUSE, _LAST_PAUSE = 0.005, 0.5
_LATEST = 1.0  # How long, in seconds, an answer that began in time may take to arrive.
_RECONNECTS = 1.0  # After this many seconds, a pool waiting for a server tries again.
_ENCODING = "utf8"  # Whatever the database's encoding: else texts come as bytes.
_OWN = ("schema", "durability")  # URL options that are not Postgres'.
_PROBES = 2  # Minimum seconds for a new connection, a limit of libpq.

# The pool logs every failed connection. Callers get an error instead, and a library does not write
# to the terminal.
logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())


class _ArrayDumper(Dumper):
    """Passes an encoded array through."""

    format = Format.BINARY

    def __init__(self, cls: type, context: AdaptContext | None = None) -> None:
        super().__init__(cls, context)
        self.oid = 0

    def dump(self, obj: Array) -> bytes:
        """The bytes of an array. The statement determines its type."""
        return obj.data


# For a class of our own, so that nobody else is affected.
psycopg.adapters.register_dumper(Array, _ArrayDumper)


class Connection(psycopg.Connection[Row]):
    """A connection whose statements end at a deadline, even if the server is silent."""

    deadline: float | None = None
    direct = False
    """Whether it leads to the server itself rather than a pooler."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._calls: dict[bytes, bytes] = {}
        """The names of statements that are prepared."""

    def look(self) -> None:
        """Detect a pooler, which reports a backend process id of its own."""
        row = self.execute("SELECT pg_backend_pid()", prepare=False).fetchone()
        self.direct = row is not None and row[0] == self.info.backend_pid

    def has_news(self) -> bool:
        """Whether the server sent something unasked: usually the end of the connection."""
        poll = select.poll()
        poll.register(self.fileno(), select.POLLIN)
        return bool(poll.poll(0))

    def call(self, statement: bytes, values: Sequence[bytes | None], prepare: bool) -> list[Row]:
        """Run a statement in binary format: a cursor takes three times as long."""
        formats = [Format.BINARY] * len(values)
        if not prepare:
            self.pgconn.send_query_params(
                statement, values, param_formats=formats, result_format=Format.BINARY
            )
            return _rows(self._result())
        name = self._calls.get(statement)
        if name is None:
            name = b"ropewalk_%d" % len(self._calls)
            self.pgconn.send_prepare(name, statement)
            self._result()
            self._calls[statement] = name
        self.pgconn.send_query_prepared(name, values, formats, Format.BINARY)
        return _rows(self._result())

    def _result(self) -> PGresult:
        """The answer; raises the server's error, or `TimedOut`."""
        connection = self.pgconn
        while connection.flush():
            if self._ready(select.POLLIN | select.POLLOUT) & select.POLLIN:
                connection.consume_input()
        found: PGresult | None = None
        while True:
            while connection.is_busy():
                self._ready(select.POLLIN)
                connection.consume_input()
            result = connection.get_result()
            if result is None:
                break
            found = found or result
        if found is None:
            raise psycopg.OperationalError("the server gave no answer")
        if found.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
            raise psycopg.errors.error_from_result(found, _ENCODING)
        return found

    def _ready(self, events: int) -> int:
        """Wait until the socket is ready."""
        poll = select.poll()
        poll.register(self.pgconn.socket, events)
        if self.deadline is None:
            return poll.poll()[0][1]
        left = self.deadline - time.monotonic()
        ready = poll.poll(max(1000 * left, 0))
        _expect_in_time(self.deadline, bool(ready))
        return ready[0][1] if ready else 0

    def wait(self, gen: PQGen[R], *args: Any, **kwargs: Any) -> R:
        """Drive a statement until it is done or out of time."""
        bounded = gen if self.deadline is None else _until(gen, self.deadline)
        return super().wait(bounded, *args, **kwargs)


def _until(gen: PQGen[R], deadline: float) -> PQGen[R]:
    """The same generator, which raises at the deadline.

    What has arrived by then is still read, unless that takes too long.
    """
    try:
        asked = next(gen)
        while True:
            ready = yield asked
            try:
                _expect_in_time(deadline, bool(ready))
            except TimedOut:
                gen.close()
                raise
            asked = gen.send(ready)
    except StopIteration as done:
        result: R = done.value
        return result


def _expect_in_time(deadline: float, ready: bool) -> None:
    if time.monotonic() - deadline > (_LATEST if ready else 0.0):
        raise TimedOut("the server did not answer in time")


_READ: Final[Mapping[int, Callable[[bytes], Any]]] = {
    16: lambda data: data == b"\1",
    17: bytes,
    20: lambda data: int.from_bytes(data, "big", signed=True),
    23: lambda data: int.from_bytes(data, "big", signed=True),
    25: lambda data: data.decode(_ENCODING),
    2278: lambda data: None,
}
"""Decoders by type number, for the few types our functions return."""


def _rows(result: PGresult) -> list[Row]:
    columns = [(at, _READ[result.ftype(at)]) for at in range(result.nfields)]
    value = result.get_value
    return [
        tuple([None if (data := value(row, at)) is None else read(data) for at, read in columns])
        for row in range(result.ntuples)
    ]


class Settings(NamedTuple):
    """How connections are made and lent."""

    least: int
    most: int
    timeout: float
    connect_timeout: float


class Place(NamedTuple):
    """The location of a database: a form without secrets, and the connection string."""

    shown: str
    conninfo: str


def _unknown_option(dsn: str) -> str | None:
    """The first option after the ? of a URL that Postgres does not know; None if all are known."""
    address, _, query = dsn.rpartition("?")
    if "@" in query or "?" in address:  # It may be a part of the password.
        return None
    known = {option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()}
    names = [name for name, same, _ in (one.partition("=") for one in query.split("&")) if same]
    return next((name for name in names if name.isidentifier() and name not in known), None)


def read_dsn(dsn: str, schema: str) -> Place:
    """Parse a connection string, with a form without secrets; raises `InvalidInput`."""
    try:
        parts = conninfo.conninfo_to_dict(dsn)
    except (psycopg.Error, ValueError, UnicodeError):
        # The driver's message may quote a password.
        raise bad_dsn(_unknown_option(dsn)) from None
    host = str(parts.get("host") or parts.get("hostaddr") or "")
    port, name = str(parts.get("port") or ""), str(parts.get("dbname") or "")
    # An unescaped @ or / in a password would put part of it into the shown form.
    spilled = "@" in host[1:] or "@" in name or (not port.replace(",", "0").isdigit() and port)
    if spilled or "\0" in dsn:
        raise bad_dsn()
    where = f"{host or 'the default host'}{f':{port}' if port else ''}"
    shown = f"the Postgres store at {where}{f'/{name}' if name else ''}, schema {schema}"
    return Place(shown, dsn)


def split_dsn(dsn: str) -> tuple[str, dict[str, str]]:
    """Split our own options from those of Postgres in a URL."""
    head, mark, query = dsn.partition("?")
    if not dsn.startswith(("postgresql://", "postgres://")) or not mark:
        return dsn, {}
    own: dict[str, str] = {}
    rest: list[str] = []
    for part in query.split("&"):
        key, _, value = part.partition("=")
        if key in _OWN:
            own[key] = value
        elif part:
            rest.append(part)
    return head + ("?" + "&".join(rest) if rest else ""), own


class Pool:
    """A connection pool that retries what is safe to retry. Safe to share."""

    def __init__(self, place: Place, settings: Settings) -> None:
        self.place = place
        self.settings = settings
        self._lock = freed_after_fork(threading.Lock())
        self._closed = False
        self._process = os.getpid()
        self._left_behind: list[object] = []
        self._prepares = True
        self._pool: ConnectionPool[Connection] | None = None

    # Statements.

    def rows(
        self,
        statement: str,
        parameters: Sequence[Any] = (),
        *,
        repeatable: bool = True,
    ) -> list[Row]:
        """Run one statement, which is its own transaction.

        If the answer is lost, a `repeatable` statement is retried until the deadline of the call;
        any other raises `Unavailable` at once.
        """

        def ask(connection: Connection) -> list[Row]:
            # The statement is ours; user input is only in the parameters.
            cursor = connection.cursor(binary=True)
            cursor.execute(statement.encode(), parameters or None, prepare=False)
            # Not `description`, which computes much that is not needed.
            result = cursor.pgresult
            return cursor.fetchall() if result is not None and result.nfields else []

        return self.run(ask, repeatable=repeatable)

    def call(
        self,
        statement: bytes,
        values: Callable[[], Sequence[bytes | None]],
        *,
        repeatable: bool = True,
    ) -> list[Row]:
        """Call a function, with values in Postgres' binary format.

        The values are computed for each attempt.
        """

        def ask(connection: Connection) -> list[Row]:
            prepare = connection.direct and self._prepares
            return connection.call(statement, values(), prepare)

        return self.run(ask, repeatable=repeatable)

    def row(self, statement: str, parameters: Sequence[Any] = ()) -> Row:
        """Run a repeatable statement that returns one row."""
        (found,) = self.rows(statement, parameters)
        return found

    def run(self, work: Callable[[Connection], R], *, repeatable: bool) -> R:
        """Use a connection within the deadline of one call."""
        began = time.monotonic()
        deadline, hurry = began + self.settings.timeout, began + tries_for(self.settings.timeout)
        pauses = _pauses()
        while True:
            try:
                with (
                    translated(self.place.shown),
                    self._lent(deadline, repeatable) as connection,
                ):
                    return work(connection)
            except (Lost, Again, Unprepared) as error:
                # An undetected pooler: from now on nothing is prepared.
                self._prepares &= not isinstance(error, Unprepared)
                gone = isinstance(error, Lost) and not isinstance(error, AllLent)
                final = not repeatable and isinstance(error, Lost)
                if final or time.monotonic() + next(pauses) >= (hurry if gone else deadline):
                    seconds = self.settings.timeout
                    raise unavailable(self.place.shown, error.error, seconds) from error.error

    @contextmanager
    def _lent(self, deadline: float, repeatable: bool = True) -> Iterator[Connection]:
        pool = self._opened()
        connection = self._taken(pool, deadline)
        while not repeatable and connection.has_news():
            # The server closed it while idle. A statement that is sent only once must not be lost
            # to that.
            connection.close()
            pool.putconn(connection)
            connection = self._taken(pool, deadline)
        connection.deadline = deadline
        try:
            yield connection
        except TimedOut:
            connection.close()  # It is in the middle of a statement.
            raise
        finally:
            connection.deadline = time.monotonic() + self.settings.connect_timeout
            pool.putconn(connection)

    def _taken(self, pool: ConnectionPool[Connection], deadline: float) -> Connection:
        """A connection of the pool. If the pool has given up on the server, it tries again."""
        now = time.monotonic()
        until = now + tries_for(deadline - now)
        while True:
            left = until - time.monotonic()
            try:
                return pool.getconn(max(min(left, _RECONNECTS), 0.001))
            except PoolTimeout as error:
                if left <= _RECONNECTS:
                    raise self._reason(error) from error
            except PoolClosed as error:
                raise StoreClosed(f"{self.place.shown} was closed") from error

    def _reason(self, error: PoolTimeout) -> Exception:
        """Why there is no connection: the error of a new one, or that all are in use."""
        try:
            self.connect(seconds=_PROBES).close()
        except RopewalkError as told:
            return told
        most = self.settings.most
        words = f"none of at most {most} connections was free; max_connections is how many"
        return AllLent(psycopg.OperationalError(words))

    # Connections.

    def connect(self, conninfo: str | None = None, seconds: float | None = None) -> Connection:
        """A dedicated connection; raises an actionable error."""
        patience = self.settings.connect_timeout if seconds is None else seconds
        try:
            return Connection.connect(
                self.place.conninfo if conninfo is None else conninfo,
                autocommit=True,
                prepare_threshold=None,
                connect_timeout=max(_PROBES, round(patience)),
                client_encoding=_ENCODING,
            )
        except psycopg.ProgrammingError:
            raise bad_dsn() from None
        except psycopg.Error as error:
            raise from_connecting(self.place.shown, error) from error

    def _opened(self) -> ConnectionPool[Connection]:
        pool = self._pool
        if pool is not None and self._process == os.getpid():
            return pool
        with self._lock:
            if self._closed:
                raise StoreClosed(f"{self.place.shown} was closed")
            if self._process != os.getpid():
                # After a fork, connections belong to the parent. They must not even be closed
                # here.
                self._left_behind.append(self._pool)
                self._process, self._pool = os.getpid(), None
            if self._pool is None:
                self._pool = self._make()
            return self._pool

    def _make(self) -> ConnectionPool[Connection]:
        settings = self.settings
        pool = ConnectionPool(
            self.place.conninfo,
            connection_class=Connection,
            kwargs={
                "autocommit": True,
                "prepare_threshold": 0,
                "connect_timeout": max(_PROBES, round(settings.connect_timeout)),
                "client_encoding": _ENCODING,
            },
            configure=Connection.look,
            min_size=settings.least,
            max_size=settings.most,
            timeout=settings.timeout,
            reconnect_timeout=_RECONNECTS,
            name="ropewalk",
            open=False,
        )
        pool.open()
        return pool

    def close(self) -> None:
        """Close every connection."""
        with self._lock:
            self._closed = True
            pool, self._pool = self._pool, None
        if pool is not None and self._process == os.getpid():
            with suppress(psycopg.Error):
                pool.close()


def _pauses() -> Iterator[float]:
    """Sleep a little longer each time, yielding the time slept."""
    pause = 0.0
    while True:
        slept = pause * random.uniform(0.5, 1.0)  # noqa: S311 - so that two do not keep step
        time.sleep(slept)
        yield slept
        pause = min(max(2 * pause, _FIRST_PAUSE), _LAST_PAUSE)
