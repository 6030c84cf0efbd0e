"""The connections to one Redis server, and the scripts that run there.

Each new connection is greeted: the server must still be one that keeps what was asked for,
and hold the same store. So a server that was restarted, or replaced by a replica, is noticed
before anything is written to it.
"""

from __future__ import annotations

import os
import pkgutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from hashlib import sha1
from typing import Any, NamedTuple, TypeVar

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from ropewalk.errors import Corrupt, InvalidInput, NotAllowed, StoreClosed
from ropewalk.store._haste import tries_for
from ropewalk.store._records import Durability, Header, decode_header
from ropewalk.store._redis_address import Address, gone
from ropewalk.store._redis_durability import Asked, Settings, judge
from ropewalk.store._redis_errors import from_redis, is_passing
from ropewalk.store._turns import Patience

R = TypeVar("R")

_CONNECT_SECONDS = 5.0
_ASKED = (
    ("INFO", "server"),
    ("INFO", "memory"),
    ("CONFIG", "GET", "*append*"),
    ("CONFIG", "GET", "maxmemory*"),
    ("CONFIG", "GET", "save"),
)


class Script(NamedTuple):
    """A script, and the name by which a server that has seen it knows it."""

    text: bytes
    digest: str


@cache
def script(name: str) -> Script:
    """One of the scripts of this package."""
    text = pkgutil.get_data(__package__, f"redis_scripts/{name}.lua")
    assert text is not None
    return Script(text, sha1(text, usedforsecurity=False).hexdigest())


class Server:
    """A Redis server, as one store uses it. Safe to share between threads."""

    def __init__(
        self, address: Address, root: str, asked: Asked, timeout: float, connections: int
    ) -> None:
        self.address = address
        self.where, self.root = address.shown, root
        self.header_bytes = b""
        self.durability: Durability = "none"
        self._asked: Asked = asked
        self._timeout = timeout
        self._new_header = b""
        self._closing = False
        self._active = 0
        self._process = os.getpid()
        self._idle = threading.Condition()
        options = {
            **address.options,
            "max_connections": connections + 1,  # One is for who listens.
            "timeout": timeout,
            "socket_timeout": timeout,
            "socket_connect_timeout": min(timeout, _CONNECT_SECONDS),
            "socket_keepalive": True,
            "protocol": 2,
            "retry": Retry(NoBackoff(), 0),
            "redis_connect_func": self._greet,
        }
        if address.shown.startswith("unix:"):
            del options["socket_keepalive"]
        # The driver has no types for what is used of it here.
        make_pool: Any = redis.BlockingConnectionPool
        pool = make_pool(**options)
        try:
            pool.make_connection()  # Connects to nobody yet.
        except (TypeError, ValueError, redis.RedisError) as error:
            raise InvalidInput(
                f"the ssl_ options in the URL of {self.where} are not those of redis-py: {error}"
            ) from error
        self._redis: Any = redis.Redis(connection_pool=pool)

    def open(self, new_header: bytes) -> Header | None:
        """Find the store, or make it with this header if it is not empty; None without one.

        Waits for nobody: an address that is wrong is said to be at once.
        """
        self._new_header = new_header
        try:
            with self._errors():
                self._redis.ping()
        finally:
            self._new_header = b""
        return decode_header(self.header_bytes) if self.header_bytes else None

    def ask(self, *command: Any, again: bool = True) -> Any:
        """Send a command; again, if the connection fails and that does no harm."""
        return self._answer(lambda: self._redis.execute_command(*command), again)

    def run(self, name: str, *arguments: bytes | str | int, again: bool = True) -> Any:
        """Run a script, which is one step for everybody."""
        text, digest = script(name)

        def call() -> Any:
            try:
                return self._redis.execute_command("EVALSHA", digest, 1, self.root, *arguments)
            except redis.exceptions.NoScriptError:  # It was restarted, or told to forget them.
                return self._redis.execute_command("EVAL", text, 1, self.root, *arguments)

        return self._answer(call, again)

    def ask_at_once(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Send several commands together; each is a step of its own."""

        def call() -> list[Any]:
            with self._redis.pipeline(transaction=False) as pipeline:
                for command in commands:
                    pipeline.execute_command(*command)
                replies = pipeline.execute(raise_on_error=False)
            for reply in replies:
                # Not left to the driver, which would quote the command, and so what is stored.
                if isinstance(reply, Exception):
                    raise reply
            return list(replies)

        return self._answer(call, True)

    @contextmanager
    def listening(self, channel: str) -> Iterator[Callable[[float], bytes | None]]:
        """Subscribe to a channel: a function that waits for the next message."""
        with self._errors(), self._redis.pubsub(ignore_subscribe_messages=True) as pubsub:
            pubsub.subscribe(channel)

            def heard(seconds: float) -> bytes | None:
                message = pubsub.get_message(timeout=seconds)
                return None if message is None else message["data"]

            yield heard

    def close(self) -> None:
        """Let what is under way finish, then close all connections."""
        with self._idle:
            self._closing = True
            self._idle.wait_for(lambda: self._active == 0, self._timeout)
        self._redis.connection_pool.disconnect()

    # Inside.

    def _answer(self, call: Callable[[], R], again: bool) -> R:
        patience = Patience(tries_for(self._timeout), first=0.01, last=0.5)
        with self._errors(), self._busy():
            while True:
                try:
                    return call()
                except redis.ConnectionError as error:
                    if not (again and is_passing(error) and patience.wait()):
                        raise

    @contextmanager
    def _busy(self) -> Iterator[None]:
        """Count what is under way, for `close`."""
        if self._process != os.getpid():  # What other threads were at, they are at elsewhere.
            self._process, self._active, self._idle = os.getpid(), 0, threading.Condition()
        with self._idle:
            self._expect_open()
            self._active += 1
        try:
            yield
        finally:
            with self._idle:
                self._active -= 1
                if self._closing:
                    self._idle.notify_all()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (redis.RedisError, OSError) as error:
            self._expect_open()
            raise from_redis(self.where, error) from error

    def _expect_open(self) -> None:
        if self._closing:
            raise StoreClosed(f"the store at {self.where} was closed")

    def _greet(self, connection: Any) -> None:
        """Make a new connection ready, or refuse the server that it leads to."""
        try:
            connection.on_connect()
            settings = _settings(self.where, connection)
            self.durability = judge(self.where, settings, self._asked)
            self._find(connection, settings.info.get("run_id", "unknown"))
        except BaseException:
            connection.disconnect()
            raise

    def _find(self, connection: Any, run_id: str) -> None:
        first = int(not self.header_bytes)
        command = ("EVAL", script("open").text, 1, self.root, run_id, self._new_header, first)
        (found,) = _converse(connection, command)
        if isinstance(found, Exception):
            if "HEADLESS" not in str(found):
                raise found
            raise Corrupt(
                f"the store at {self.where} has objects but no header: restore it from a copy, or "
                "choose another name"
            )
        if self.header_bytes and found != self.header_bytes:
            raise gone(self.where)
        self.header_bytes = found or b""


def _settings(where: str, connection: Any) -> Settings:
    server, memory, *config = _converse(connection, *_ASKED)
    for reply in (server, memory):
        if isinstance(reply, Exception):
            raise NotAllowed(
                f"the Redis server at {where} does not allow INFO to its user: {reply}. Ropewalk "
                "needs it to see whether live data could be evicted: ACL SETUSER name +info."
            )
    lines = (server + memory).decode("utf-8", "replace").splitlines()
    info = dict(line.split(":", 1) for line in lines if ":" in line)
    if any(isinstance(reply, Exception) for reply in config):
        return Settings(info, None)
    names = [part.decode() for reply in config for part in reply]
    return Settings(info, dict(zip(names[::2], names[1::2], strict=True)))


def _converse(connection: Any, *commands: tuple[Any, ...]) -> list[Any]:
    """Ask for several things at once on one connection; what the server refuses is an error."""
    for command in commands:
        connection.send_command(*command)
    replies: list[Any] = []
    for _ in commands:
        try:
            replies.append(connection.read_response())
        except redis.ResponseError as error:
            replies.append(error)
    return replies
