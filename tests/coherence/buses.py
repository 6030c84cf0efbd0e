"""The servers of buses behind a network that can be cut."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from ropewalk.coherence import Bus, NatsBus, PostgresBus, RedisBus
from tests.postgres import Postgres, running_postgres
from tests.proxy import Proxy
from tests.servers import Nats, Redis, _free_port, start_again


@contextmanager
def cut(proxy: Proxy) -> Iterator[None]:
    """Every connection ends, and new ones are refused, until this is left."""
    proxy.refuse()
    try:
        yield
    finally:
        proxy.accept()


def through(proxy: Proxy, url: str) -> str:
    """The address of a server by way of a proxy."""
    parts = urlsplit(url)
    user, at, _ = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user}{at}{proxy.host}:{proxy.port}"))


@contextmanager
def proxied(url: str) -> Iterator[tuple[Proxy, str]]:
    """A proxy in front of a server, and its address by that way."""
    parts = urlsplit(url)
    assert parts.hostname is not None and parts.port is not None
    with Proxy(parts.hostname, parts.port) as proxy:
        yield proxy, through(proxy, url)


class Killable:
    """A server on a port and in a folder that stay the same, which can be killed."""

    def __init__(self, make: Callable[[int], Redis | Nats], folder: Path) -> None:
        self._server, self._folder = make(_free_port()), folder
        self.url = self._server.url
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, or start it again, and wait until it answers."""
        self._process = start_again(self._server, self._folder)

    def kill(self) -> None:
        """End it as a crash would."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()


class KillablePostgres:
    """The same for Postgres."""

    def __init__(self, server: Postgres) -> None:
        self._server = server
        self.url = server.url()

    def start(self) -> None:
        """Start it again, and wait until it answers."""
        self._server.start(fsync=False)

    def kill(self) -> None:
        """End it as a crash would."""
        self._server.kill()


@contextmanager
def killable(kind: str) -> Iterator[Killable | KillablePostgres]:
    """A running server that can be killed and started again."""
    if kind == "postgres":
        with running_postgres() as postgres:
            yield KillablePostgres(postgres)
        return
    with tempfile.TemporaryDirectory(prefix="ropewalk-server-") as folder:
        server = Killable(Redis if kind == "redis" else Nats, Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.kill()


def open_bus(kind: str, url: str, prefix: str = "ropewalk", *, patience: float = 5.0) -> Bus:
    """A bus over a server, which gives up a server that says nothing after so many seconds."""
    if kind == "redis":
        return RedisBus(url, prefix=prefix, patience=patience)
    if kind == "postgres":
        return PostgresBus(url, prefix=prefix, patience=patience)
    return NatsBus(url, prefix=prefix, ping_interval=patience, connect_timeout=patience)
