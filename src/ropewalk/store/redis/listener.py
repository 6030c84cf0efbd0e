"""Notifications of commits, and messages of buses, over Redis publish and subscribe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from ropewalk.errors import Unavailable
from ropewalk.store.pubsub import Listener, PubSub, Received, Sender
from ropewalk.store.redis.address import Address
from ropewalk.store.retry import PATIENCE
from ropewalk.store.watch import WAKE

_CONNECT_SECONDS: Final = 2.0
_LARGEST: Final = 512 * 1024 * 1024  # The default limit of Redis.


class RedisPubSub(PubSub):
    """Publish and subscribe on a server, with channels of one `prefix`."""

    def __init__(
        self,
        address: Address,
        prefix: str,
        *,
        wake: bytes | None = None,
        patience: float = PATIENCE,
    ) -> None:
        """`wake` is the channel on which commits to a store publish the names of their spaces."""
        self._address, self._wake = address, wake
        self._prefix = f"{prefix}:bus:".encode()
        super().__init__(patience)

    def __repr__(self) -> str:
        return f"SUBSCRIBE at {self._address.shown}"

    @property
    def message_limit(self) -> int:
        """The maximum size of a message in bytes."""
        return _LARGEST

    def _connect(self) -> Any:
        options = {
            **self._address.options,
            "socket_timeout": self._patience,
            "socket_connect_timeout": min(self._patience, _CONNECT_SECONDS),
            "protocol": 2,
            "retry": Retry(NoBackoff(), 0),
        }
        # The driver is untyped for what is used here.
        make_pool: Any = redis.ConnectionPool
        connection = make_pool(**options).make_connection()
        connection.connect()
        return connection

    def _open_sender(self) -> Sender:
        return _Sender(self._connect(), self._prefix)

    def _open_listener(self) -> Listener:
        return _Listener(self._connect(), self._prefix, self._wake)


class _Sender(Sender):
    def __init__(self, connection: Any, prefix: bytes) -> None:
        self._connection, self._prefix = connection, prefix

    def send(self, messages: Sequence[tuple[str, bytes]]) -> None:
        commands = [("PUBLISH", self._prefix + topic.encode(), said) for topic, said in messages]
        self._connection.send_packed_command(self._connection.pack_commands(commands))
        for _ in commands:
            self._connection.read_response()

    def close(self) -> None:
        self._connection.disconnect()


class _Listener(Listener):
    def __init__(self, connection: Any, prefix: bytes, wake: bytes | None) -> None:
        self._connection, self._prefix, self._wake = connection, prefix, wake
        self._asked = False

    def fileno(self) -> int:
        found: int = self._connection._sock.fileno()
        return found

    def follow(self, topics: Sequence[str]) -> None:
        self._command("SUBSCRIBE", topics)

    def leave(self, topics: Sequence[str]) -> None:
        self._command("UNSUBSCRIBE", topics)

    def receive(self) -> Iterator[Received]:
        while self._connection.can_read(timeout=0):
            reply = self._connection.read_response()
            self._asked = False
            if not isinstance(reply, list) or len(reply) < 3:
                continue
            kind, channel, said = reply[:3]
            if channel == self._wake:
                if kind == b"subscribe":
                    yield Received(WAKE, None)
                if kind in (b"message", b"subscribe"):  # There may have been commits before.
                    yield Received(WAKE, said if kind == b"message" else b"")
            elif kind in (b"message", b"subscribe") and channel.startswith(self._prefix):
                topic = channel[len(self._prefix) :].decode("utf-8", "replace")
                yield Received(topic, said if kind == b"message" else None)

    def ask(self) -> None:
        if self._asked:
            raise Unavailable("the Redis server does not answer")
        self._asked = True
        self._connection.send_command("PING", check_health=False)

    def close(self) -> None:
        self._connection.disconnect()

    def _command(self, word: str, topics: Sequence[str]) -> None:
        channels = [
            self._wake if topic == WAKE and self._wake else self._prefix + topic.encode()
            for topic in topics
        ]
        self._connection.send_command(word, *channels, check_health=False)
