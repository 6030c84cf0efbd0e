"""The connections to one Redis server, and the scripts that run there.

Every new connection is checked: the server must still provide the requested durability, and hold
the same store. A server that was restarted, or replaced by a replica, is therefore noticed before
anything is written to it.
"""

from __future__ import annotations

import os
import pkgutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from hashlib import sha1
from typing import Any, Final, NamedTuple, TypeAlias

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from ropewalk.errors import Corrupt, InvalidInput, NotAllowed, StoreClosed, Unavailable
from ropewalk.store.group import Member, SendingGroup
from ropewalk.store.model import Durability, Header, decode_header
from ropewalk.store.redis.address import Address, Asked, Settings, gone, judge
from ropewalk.store.redis.errors import from_redis, is_passing
from ropewalk.store.redis.layout import Layout
from ropewalk.store.retry import Backoff, tries_for

Argument: TypeAlias = bytes | str | int
Command: TypeAlias = tuple[Argument, ...]
Converse: TypeAlias = Callable[[Sequence[Command]], list[Any]]

_GROUP_BYTES: Final = 256 * 1024
_LEADS_AFTER: Final = 0.5  # Seconds that a thread waits for a leader before it leads as well.
_CONNECT_SECONDS: Final = 5.0
_ASKED: Final[tuple[Command, ...]] = (
    ("INFO", "server"),
    ("INFO", "memory"),
    ("CONFIG", "GET", "*append*"),
    ("CONFIG", "GET", "maxmemory*"),
    ("CONFIG", "GET", "save"),
)


class Script(NamedTuple):
    """A script, and the digest by which a server that has loaded it knows it."""

    text: bytes
    digest: str


@cache
def script(name: str) -> Script:
    """One of the scripts of this package."""
    parts = [name] if name == "open" else ["common", name]
    texts = [pkgutil.get_data(__package__, f"scripts/{part}.lua") or b"" for part in parts]
    text = b"\n".join(texts)
    return Script(text, sha1(text, usedforsecurity=False).hexdigest())


class _Commit(NamedTuple):
    """The command of a commit, and the one for a retry that may find it done."""

    command: Command
    again: Command


class Server:
    """A Redis server, as one store uses it. Safe to share between threads."""

    def __init__(
        self, address: Address, layout: Layout, asked: Asked, timeout: float, connections: int
    ) -> None:
        self.address = address
        self.where = address.shown
        self.layout = layout
        self.durability: Durability = "none"
        self._asked: Asked = asked
        self._timeout, self._most = timeout, connections
        self._new_header = b""
        self._closing = False
        self._begin()
        self._group: SendingGroup[_Commit, Any] = SendingGroup(
            lambda members: self._converse([one.command for one in members]),
            _GROUP_BYTES,
            patience=_LEADS_AFTER,
            resend=lambda one: self._converse([one.again])[0],
        )
        options = {
            **address.options,
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
        # The driver is untyped for what is used here.
        make_pool: Any = redis.BlockingConnectionPool
        self._pool = make_pool(**options)
        try:
            self._pool.make_connection()  # Does not connect yet.
        except (TypeError, ValueError, redis.RedisError) as error:
            raise InvalidInput(
                f"the ssl_ options in the URL of {self.where} are not those of redis-py: {error}"
            ) from error

    def _begin(self) -> None:
        self._active = 0
        self._idle: list[Any] = []
        self._changed = threading.Condition()
        self._process = os.getpid()

    def open(self, new_header: bytes) -> Header | None:
        """Open the store, or create it with this header if the server has none.

        Without a header nothing is created. An unreachable address is reported at once, without
        waiting.
        """
        self._new_header = new_header
        try:
            with self._errors():
                self._converse([("PING",)])
        finally:
            self._new_header = b""
        return decode_header(self.layout.header) if self.layout.header else None

    def ask(self, *command: Argument, again: bool = True) -> Any:
        """Send a command, retried after a failed connection if that is safe."""
        return self.ask_at_once([command], again=again)[0]

    def ask_at_once(self, commands: Sequence[Command], again: bool = True) -> list[Any]:
        """Send several commands together; each is a step of its own."""
        if again:
            return self._answers(commands, commands, self._converse)
        return self._answers(commands, None, partial(self._converse, check=True))

    def run(self, name: str, space: str, *arguments: Argument, again: bool = True) -> Any:
        """Run a script, which is atomic; retried if that is safe."""
        return self.ask(*self._script(name, space, arguments), again=again)

    def commit(
        self, space: str, arguments: Sequence[Argument], again: Sequence[Argument]
    ) -> list[Any]:
        """Run the script of a commit; the retry after a lost answer uses the arguments `again`."""
        size = sum([len(one) for one in arguments if type(one) is bytes])
        first = self._script("commit", space, arguments)
        then = self._script("commit", space, again)

        def send(commands: Sequence[Command]) -> list[Any]:
            if size >= _GROUP_BYTES:
                return self._converse(commands)
            return [self._group.run(Member(_Commit(commands[0], then), size))]

        found: list[Any] = self._answers([first], [then], send)[0]
        return found

    def _script(self, name: str, space: str, arguments: Sequence[Argument]) -> Command:
        layout = self.layout
        return ("EVALSHA", script(name).digest, 1, layout.root, layout.header, space, *arguments)

    def close(self) -> None:
        """Let requests in progress finish, then close all connections."""
        with self._changed:
            self._closing = True
            self._changed.wait_for(lambda: self._active == 0, self._timeout)
            for connection in self._idle:
                connection.disconnect()
        self._pool.disconnect()

    # Internals.

    def _answers(
        self, commands: Sequence[Command], then: Sequence[Command] | None, converse: Converse
    ) -> list[Any]:
        """The answers to commands; `then` replaces them after a failed connection."""
        backoff: Backoff | None = None
        with self._errors():
            while True:
                try:
                    replies = converse(commands)
                except redis.ConnectionError as error:
                    backoff = backoff or Backoff(tries_for(self._timeout), first=0.01, last=0.5)
                    if then is None or not (is_passing(error) and backoff.wait()):
                        raise
                    commands = then
                    continue
                for reply in replies:
                    # Not left to the driver, which would quote the command and the stored data.
                    if isinstance(reply, Exception):
                        raise reply
                return replies

    def _converse(self, commands: Sequence[Command], *, check: bool = False) -> list[Any]:
        """Send commands on a free connection, and wait for all answers.

        With `check` the connection is tested first, for commands that cannot be retried.
        """
        connection = self._take()
        try:
            if check and connection._sock and _is_over(connection):
                connection.disconnect()
            replies = converse(connection, commands)
            for at, reply in enumerate(replies):
                if isinstance(reply, redis.exceptions.NoScriptError):
                    # The server was restarted, or its scripts were flushed.
                    replies[at] = converse(connection, [_whole(commands[at])])[0]
        except BaseException:
            connection.disconnect()
            raise
        finally:
            with self._changed:
                self._active -= 1
                self._idle.append(connection)
                self._changed.notify_all() if self._closing else self._changed.notify()
        return replies

    def _take(self) -> Any:
        if self._process != os.getpid():  # Other threads go on with connections of their own.
            self._begin()
        with self._changed:
            self._expect_open()
            if self._active >= self._most and not self._changed.wait_for(
                lambda: self._active < self._most or self._closing, self._timeout
            ):
                raise Unavailable(
                    f"all connections to the Redis server at {self.where} are in use; raise "
                    "`connections`"
                )
            self._expect_open()
            self._active += 1
            return self._idle.pop() if self._idle else self._pool.make_connection()

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
        """Prepare a new connection, or reject the server it leads to."""
        try:
            connection.on_connect()
            settings = _settings(self.where, connection)
            self.durability = judge(self.where, settings, self._asked)
            self._find(connection, settings.info.get("run_id", "unknown"))
        except BaseException:
            connection.disconnect()
            raise

    def _find(self, connection: Any, run_id: str) -> None:
        known = self.layout.header
        text = script("open").text
        now = int(time.time())
        command = ("EVAL", text, 1, self.layout.root, run_id, self._new_header, int(not known), now)
        (found,) = converse(connection, [command])
        if isinstance(found, Exception):
            if "FORMAT1" in str(found):
                raise NotAllowed(
                    f"the store at {self.where} has format 1, from before the first release, which "
                    "this version does not read: choose another name, or remove its keys to begin "
                    "anew."
                )
            if "HEADLESS" in str(found):
                raise Corrupt(
                    f"the store at {self.where} has objects but no header: restore it from a copy, "
                    "or choose another name"
                )
            raise found
        if known and found != known:
            raise gone(self.where)
        self.layout.header = found or b""


def _is_over(connection: Any) -> bool:
    """Whether an idle connection has ended."""
    try:
        return bool(connection.can_read(timeout=0))
    except (redis.RedisError, OSError):
        return True


def _whole(command: Command) -> Command:
    """The command that runs a script by its name, with its text."""
    texts = {script(name).digest: script(name).text for name in _SCRIPTS}
    return ("EVAL", texts[str(command[1])], *command[2:])


_SCRIPTS: Final = ("commit", "load", "find", "stage", "pack", "replace", "collect", "lease")


def _settings(where: str, connection: Any) -> Settings:
    server, memory, *config = converse(connection, _ASKED)
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


def converse(connection: Any, commands: Sequence[Command]) -> list[Any]:
    """Send several commands at once on one connection; server errors are returned as values."""
    if len(commands) == 1:
        connection.send_command(*commands[0], check_health=False)
    else:
        packed = connection.pack_commands(commands)
        connection.send_packed_command(packed, check_health=False)
    replies: list[Any] = []
    for _ in commands:
        try:
            replies.append(connection.read_response())
        except redis.ResponseError as error:
            replies.append(error)
    return replies
