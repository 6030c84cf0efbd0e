"""The bus over Postgres' LISTEN and NOTIFY."""

from __future__ import annotations

import time
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

from ropewalk.coherence.local_bus import QUEUE
from ropewalk.coherence.remote_bus import PATIENCE, Listener, Received, RemoteBus, Sender
from ropewalk.errors import InvalidInput, NotAllowed

if TYPE_CHECKING:
    from psycopg import Notify

    from ropewalk.store.postgres.pool import Connection

_PAYLOAD = 7999  # What Postgres takes, as text.
_LISTENED = 500  # Topics in one statement.


class PostgresBus(RemoteBus):
    """A `Bus` over a Postgres database; `dsn` is as for `PostgresStore`.

    Clients that share artifacts share the database and `prefix`. Content of more than about
    6,000 bytes is left out, and fetched by who needs it. `dsn` must lead to the server itself:
    a pooler in transaction mode keeps no LISTEN. Keeps the order of each sender. Needs the
    extra `postgres`.
    """

    message_limit = _PAYLOAD // 4 * 3

    def __init__(
        self,
        dsn: str,
        *,
        prefix: str = "ropewalk",
        queue: int = QUEUE,
        patience: float = PATIENCE,
    ) -> None:
        try:
            from ropewalk.store.postgres.pool import Pool, Settings, read_dsn
        except ModuleNotFoundError as error:
            raise InvalidInput(
                f"a bus over Postgres needs the package {error.name!r}: "
                "pip install 'ropewalk[postgres]'"
            ) from error
        from ropewalk.store.postgres.database import split_dsn

        place = read_dsn(split_dsn(dsn)[0], prefix)
        self._shown = place.shown
        self._prefix = prefix
        self._pool = Pool(place, Settings(0, 1, patience, patience))  # Only connects.
        super().__init__(queue=queue, patience=patience)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self._shown}>"

    def _open_sender(self) -> Sender:
        return _Sender(self._pool.connect(), self._prefix, self._patience)

    def _open_listener(self) -> Listener:
        return _Listener(self._pool.connect(), self._prefix, self._patience)


def _channel(prefix: str, topic: str) -> str:
    """A name of at most 63 bytes, which is all that Postgres takes."""
    return f"rw_{blake2b(f'{prefix} {topic}'.encode(), digest_size=20).hexdigest()}"


class _Sender(Sender):
    def __init__(self, connection: Connection, prefix: str, patience: float) -> None:
        self._connection, self._prefix, self._patience = connection, prefix, patience
        self._execute("SET synchronous_commit = off", ())  # Nothing here has to survive.
        connection.prepare_threshold = 0

    def send(self, messages: Sequence[tuple[str, bytes]]) -> None:
        sent = [(_channel(self._prefix, topic), b64encode(said)) for topic, said in messages]
        if len(sent) == 1:
            channel, payload = sent[0]
            self._execute("SELECT pg_notify(%s, %s)", (channel, payload.decode()))
            return
        self._execute(
            "SELECT pg_notify(c, p) FROM unnest(%s::text[], %s::text[]) AS sent (c, p)",
            ([channel for channel, _ in sent], [payload.decode() for _, payload in sent]),
        )

    def close(self) -> None:
        self._connection.close()

    def _execute(self, statement: str, parameters: Sequence[object]) -> None:
        self._connection.deadline = time.monotonic() + self._patience
        self._connection.execute(statement.encode(), parameters or None)


class _Listener(Listener):
    def __init__(self, connection: Connection, prefix: str, patience: float) -> None:
        self._connection, self._prefix, self._patience = connection, prefix, patience
        self._topics: dict[str, str] = {}
        self._received: list[Received] = []
        connection.deadline = time.monotonic() + patience
        connection.look()
        if not connection.direct:
            connection.close()
            raise NotAllowed(
                "a bus over Postgres cannot listen through a pooler: give the address of the "
                "server itself, for a store as listen_dsn="
            )
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
        """Keep what came while a statement was under way."""
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
