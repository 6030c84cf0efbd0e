"""The bus over Redis' publish and subscribe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ropewalk.coherence.local_bus import QUEUE
from ropewalk.coherence.remote_bus import PATIENCE, Listener, Received, RemoteBus, Sender
from ropewalk.errors import InvalidInput, Unavailable
from ropewalk.store.redis.address import Address, read_address

_CONNECT_SECONDS = 2.0


class RedisBus(RemoteBus):
    """A `Bus` over a Redis or Valkey server; `url` is as for `RedisStore`.

    All channels begin with `prefix`: clients that share artifacts share it. Keeps the order of
    each sender. Needs the extra `redis`.
    """

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "ropewalk",
        queue: int = QUEUE,
        patience: float = PATIENCE,
    ) -> None:
        try:
            self._address = url if isinstance(url, Address) else read_address(url)
        except ModuleNotFoundError as error:
            raise InvalidInput(
                f"a bus over Redis needs the package {error.name!r}: pip install 'ropewalk[redis]'"
            ) from error
        self._prefix = f"{prefix}:bus:".encode()
        super().__init__(queue=queue, patience=patience)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self._address.shown}>"

    def _connect(self) -> Any:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        options = {
            **self._address.options,
            "socket_timeout": self._patience,
            "socket_connect_timeout": min(self._patience, _CONNECT_SECONDS),
            "protocol": 2,
            "retry": Retry(NoBackoff(), 0),
        }
        # The driver has no types for what is used of it here.
        make_pool: Any = redis.ConnectionPool
        connection = make_pool(**options).make_connection()
        connection.connect()
        return connection

    def _open_sender(self) -> Sender:
        return _Sender(self._connect(), self._prefix)

    def _open_listener(self) -> Listener:
        return _Listener(self._connect(), self._prefix)


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
    def __init__(self, connection: Any, prefix: bytes) -> None:
        self._connection, self._prefix = connection, prefix
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
            if kind in (b"message", b"subscribe") and channel.startswith(self._prefix):
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
        channels = [self._prefix + topic.encode() for topic in topics]
        self._connection.send_command(word, *channels, check_health=False)
