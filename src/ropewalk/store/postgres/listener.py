"""Notifications of commits, and messages of buses, over Postgres' LISTEN and NOTIFY.

NOTIFY inside a commit would serialize all commits of the database: Postgres lets one transaction
that notifies end at a time, including its sync. A commit therefore only checks whether anyone
listens to its space, and its client notifies afterwards, from a thread of its own. Notifications
may be lost, so watchers also poll the log at intervals. Where a pooler prevents LISTEN, the
sequence numbers of the spaces are polled instead.
"""

from __future__ import annotations

import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import psycopg

from ropewalk.errors import NotAllowed, RopewalkError
from ropewalk.store.forking import freed_after_fork
from ropewalk.store.postgres.pool import Connection, Pool, Settings, read_dsn, split_dsn
from ropewalk.store.pubsub import Listener, PubSub, Received, Sender
from ropewalk.store.retry import PATIENCE
from ropewalk.store.watch import WAKE, Watchers

if TYPE_CHECKING:
    from psycopg import Notify

_PAYLOAD: Final = 7999  # The maximum of Postgres, as text.
_LISTENED: Final = 500  # Topics per statement.
_LOOKS: Final = 0.05  # The polling interval in seconds without LISTEN.
_LASTS, _RENEWED = 90, 30.0  # Lifetime of a watch in seconds, and the interval of its renewal.
_CLOSES: Final = 5.0


class PostgresPubSub(PubSub):
    """LISTEN and NOTIFY on a database, with channels of one `prefix`."""

    def __init__(
        self,
        pool: Pool,
        prefix: str,
        *,
        conninfo: str | None = None,
        watches: Watches | None = None,
        patience: float = PATIENCE,
    ) -> None:
        """`pool` connects, to the server itself by `conninfo` if that is another place."""
        self._pool, self._prefix, self._conninfo = pool, prefix, conninfo
        self._watches = watches
        super().__init__(patience)

    @classmethod
    def at(cls, dsn: str, prefix: str, patience: float) -> PostgresPubSub:
        """On the database of a `dsn`, as for `PostgresStore`."""
        place = read_dsn(split_dsn(dsn)[0], prefix)
        return cls(Pool(place, Settings(0, 1, patience, patience)), prefix, patience=patience)

    def __repr__(self) -> str:
        return f"LISTEN at {self._pool.place.shown}"

    @property
    def message_limit(self) -> int:
        """The maximum size of a message in bytes."""
        return _PAYLOAD // 4 * 3

    def is_direct(self) -> bool:
        """Whether the server can be reached without a pooler, which would not keep a LISTEN."""
        if self._conninfo is not None:
            return True
        with suppress(RopewalkError):
            return bool(self._pool.run(lambda connection: connection.direct, repeatable=True))
        return True

    def _open_sender(self) -> Sender:
        return _Sender(self._pool.connect(self._conninfo), self._prefix, self._patience)

    def _open_listener(self) -> Listener:
        connection = self._pool.connect(self._conninfo)
        try:
            connection.deadline = time.monotonic() + self._patience
            connection.look()
            if connection.direct:
                return _Listener(connection, self._prefix, self._patience, self._watches)
        except BaseException:
            connection.close()
            raise
        connection.close()
        if self._watches is not None:
            return _Poller(self._pool, self._watches)
        raise NotAllowed(
            "a bus over Postgres cannot listen through a pooler: give the address of the "
            "server itself, for a store as listen_dsn="
        )


class Watches:
    """The spaces that this process watches, as registered in the database."""

    def __init__(self, watchers: Watchers, schema: str) -> None:
        self.watchers, self.schema = watchers, schema
        self.changed = False
        """Whether others do not know of all yet."""
        self._renewed = -_RENEWED

    def register(self, connection: Connection) -> list[str]:
        """Register or renew watches when due. The spaces may have changed before that."""
        spaces = self.watchers.spaces()
        now = time.monotonic()
        if not spaces or not (self.changed or now - self._renewed > _RENEWED):
            return []
        self.changed, self._renewed = False, now
        connection.execute(
            f"INSERT INTO {self.schema}.watches (until, space) "
            f"SELECT now() + interval '{_LASTS} seconds', s FROM unnest(%s::text[]) s ORDER BY s "
            "ON CONFLICT (space) DO UPDATE SET until = EXCLUDED.until".encode(),
            (spaces,),
        )
        return spaces


def _channel(prefix: str, topic: str) -> str:
    """A channel name of at most 63 bytes, the limit of Postgres."""
    return f"rw_{blake2b(f'{prefix} {topic}'.encode(), digest_size=20).hexdigest()}"


def _payload(message: bytes) -> str:
    return b64encode(message).decode()


class _Sender(Sender):
    def __init__(self, connection: Connection, prefix: str, patience: float) -> None:
        self._connection, self._prefix, self._patience = connection, prefix, patience
        self._execute("SET synchronous_commit = off", ())  # Nothing here has to be durable.
        connection.prepare_threshold = 0

    def send(self, messages: Sequence[tuple[str, bytes]]) -> None:
        sent = [(_channel(self._prefix, topic), _payload(said)) for topic, said in messages]
        if len(sent) == 1:
            channel, payload = sent[0]
            self._execute("SELECT pg_notify(%s, %s)", (channel, payload))
            return
        self._execute(
            "SELECT pg_notify(c, p) FROM unnest(%s::text[], %s::text[]) AS sent (c, p)",
            ([channel for channel, _ in sent], [payload for _, payload in sent]),
        )

    def close(self) -> None:
        self._connection.close()

    def _execute(self, statement: str, parameters: Sequence[object]) -> None:
        self._connection.deadline = time.monotonic() + self._patience
        self._connection.execute(statement.encode(), parameters or None)


class _Listener(Listener):
    def __init__(
        self, connection: Connection, prefix: str, patience: float, watches: Watches | None
    ) -> None:
        self._connection, self._prefix, self._patience = connection, prefix, patience
        self._watches = watches
        self._topics: dict[str, str] = {}
        self._received: list[Received] = []
        if watches is not None:
            watches.changed = True  # There may have been commits before.
        connection.add_notify_handler(self._note)

    def fileno(self) -> int:
        return self._connection.fileno()

    def follow(self, topics: Sequence[str]) -> None:
        self._topics.update((_channel(self._prefix, topic), topic) for topic in topics)
        self._execute("LISTEN", topics)
        self._received += [Received(topic, None) for topic in topics]

    def leave(self, topics: Sequence[str]) -> None:
        self._execute("UNLISTEN", topics)
        for topic in topics:
            self._topics.pop(_channel(self._prefix, topic), None)

    def receive(self) -> Iterator[Received]:
        if self._watches is not None:
            self._connection.deadline = time.monotonic() + self._patience
            woken = self._watches.register(self._connection)
            self._received += [Received(WAKE, space.encode()) for space in woken]
        connection = self._connection.pgconn
        connection.consume_input()
        while (found := connection.notifies()) is not None:
            self._take(found.relname.decode("utf-8", "replace"), found.extra)
        received, self._received = self._received, []
        return iter(received)

    def ask(self) -> None:
        self._connection.deadline = time.monotonic() + self._patience
        self._connection.execute(b"SELECT 1")

    def close(self) -> None:
        self._connection.close()

    def _note(self, found: Notify) -> None:
        """Keep notifications that arrived during a statement."""
        self._take(found.channel, found.payload.encode())

    def _take(self, channel: str, payload: bytes) -> None:
        topic = self._topics.get(channel)
        if topic is not None:
            try:
                self._received.append(Received(topic, b64decode(payload, validate=True)))
            except ValueError:
                self._received.append(Received(topic, payload))  # The receiver drops it.

    def _execute(self, word: str, topics: Sequence[str]) -> None:
        for first in range(0, len(topics), _LISTENED):
            some = topics[first : first + _LISTENED]
            words = "; ".join(f'{word} "{_channel(self._prefix, topic)}"' for topic in some)
            self._connection.deadline = time.monotonic() + self._patience
            self._connection.execute(words.encode())


class _Poller(Listener):
    """Polls the sequence numbers of spaces."""

    looks = _LOOKS

    def __init__(self, pool: Pool, watches: Watches) -> None:
        self._pool, self._watches = pool, watches
        self._seen: dict[str, int] = {}
        self._followed: list[Received] = []

    def fileno(self) -> int:
        return -1

    def follow(self, topics: Sequence[str]) -> None:
        self._followed += [Received(topic, None) for topic in topics]

    def leave(self, topics: Sequence[str]) -> None:
        pass

    def receive(self) -> Iterator[Received]:
        followed, self._followed = self._followed, []
        yield from followed
        rows = self._pool.rows(
            f"SELECT name, sequence FROM {self._watches.schema}.spaces "
            "WHERE name = ANY (%b::text[])",
            [self._watches.watchers.spaces()],
        )
        changed = [space for space, sequence in rows if self._seen.get(space, 0) != sequence]
        self._seen = dict(rows)
        yield from [Received(WAKE, space.encode()) for space in changed]

    def ask(self) -> None:
        pass

    def close(self) -> None:
        pass


class Notifier:
    """Notifies other processes of commits, in batches, from a thread of its own."""

    def __init__(self, pool: Pool, prefix: str) -> None:
        self._pool = pool
        self._channel = _channel(prefix, WAKE)
        self._lock = freed_after_fork(threading.Lock())
        self._spaces: set[str] = set()
        self._news = freed_after_fork(threading.Event())
        self._closed = False
        self._thread: threading.Thread | None = None

    def tell(self, space: str) -> None:
        """Notify the listeners of a space soon."""
        with self._lock:
            self._spaces.add(space)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._run, name="ropewalk-notifying", daemon=True
                )
                self._thread.start()
        self._news.set()

    def close(self) -> None:
        """Send pending notifications, and stop."""
        self._closed = True
        self._news.set()
        thread = self._thread
        if thread is not None:
            thread.join(_CLOSES)

    def _run(self) -> None:
        while True:
            self._news.wait()
            self._news.clear()
            with self._lock:
                spaces, self._spaces = self._spaces, set()
            if spaces:
                with suppress(RopewalkError, psycopg.Error):  # Watchers poll the log.
                    self._pool.rows(
                        "SELECT pg_notify(%b::text, s) FROM unnest(%b::text[]) s",
                        [self._channel, [_payload(space.encode()) for space in sorted(spaces)]],
                        repeatable=False,
                    )
            elif self._closed:
                return
