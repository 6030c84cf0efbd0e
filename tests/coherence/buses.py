"""The servers of buses behind a network that can be cut."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from holdfast.coherence import Bus, NatsBus, PostgresBus, RedisBus
from tests.postgres import Postgres, running_postgres
from tests.proxy import Proxy
from tests.servers import PATIENCE, Nats, Redis, _answers, _free_port


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
        """Start it, or start it again, and wait until it answers.

        Somebody who asks for any port may have been given ours for a moment.
        """
        until = time.monotonic() + PATIENCE
        while not self._starts():
            told = (self._folder / "log").read_text(errors="replace")
            assert "already in use" in told.lower() and time.monotonic() < until, told
            time.sleep(0.1)

    def _starts(self) -> bool:
        program = self._server.program
        found = shutil.which(program) or shutil.which(program, path="/usr/sbin")
        assert found is not None, f"{program} is not installed: run `python tools/servers.py`"
        with (self._folder / "log").open("ab") as out:
            self._process = subprocess.Popen(
                [found, *self._server.command(self._folder)[1:]],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        return _answers(self._server, self._process)

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
    with tempfile.TemporaryDirectory(prefix="holdfast-server-") as folder:
        server = Killable(Redis if kind == "redis" else Nats, Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.kill()


def open_bus(kind: str, url: str, prefix: str = "holdfast", *, patience: float = 5.0) -> Bus:
    """A bus over a server, which gives up a server that says nothing after so many seconds."""
    if kind == "redis":
        return RedisBus(url, prefix=prefix, patience=patience)
    if kind == "postgres":
        return PostgresBus(url, prefix=prefix, patience=patience)
    return NatsBus(url, prefix=prefix, ping_interval=patience, connect_timeout=patience)
