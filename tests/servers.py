"""Real servers for tests: started when first asked for, on a free port of this machine, in a
temporary folder, and stopped at the end. `tools/servers.py` installs them."""

from __future__ import annotations

import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol, TypeVar

import pytest

PATIENCE = 60.0
"""Seconds after which a server that does not answer has failed."""

_PORTS = range(10_000, 32_000)
_TRIES = 5  # Somebody else may take a port between our finding it free and its use.


class Redis:
    """A Redis server that keeps nothing on disk."""

    program = "redis-server"

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"redis://127.0.0.1:{port}/0"

    def command(self, folder: Path) -> list[str]:
        """How it is started."""
        options = {
            "bind": "127.0.0.1", "port": str(self.port), "dir": str(folder),
            "save": "", "appendonly": "no", "maxmemory-policy": "noeviction",
        }  # fmt: skip
        return [self.program, *(part for at in options for part in (f"--{at}", options[at]))]

    def answers(self) -> bool:
        """Whether it is ready."""
        try:
            return self._ask(b"PING") == b"+PONG\r\n"
        except OSError:
            return False

    def clear(self) -> None:
        """Make it empty."""
        assert self._ask(b"FLUSHALL") == b"+OK\r\n"

    def _ask(self, command: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as connection:
            connection.sendall(command + b"\r\n")
            return connection.recv(64)


class Nats:
    """A NATS server with JetStream, whose data is in a temporary folder."""

    program = "nats-server"

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"nats://127.0.0.1:{port}"

    def command(self, folder: Path) -> list[str]:
        """How it is started."""
        settings = folder / "nats.conf"
        settings.write_text(
            f'listen: "127.0.0.1:{self.port}"\n'
            f'jetstream: {{store_dir: "{folder / "jetstream"}"}}\n'
            "max_payload: 32MB\n"
        )
        return [self.program, "--config", str(settings)]

    def answers(self) -> bool:
        """Whether it is ready."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
                with connection.makefile("rb") as lines:
                    return any(line == b"PONG\r\n" for line in lines)
        except OSError:
            return False


class Server(Protocol):
    """What can be started."""

    program: str

    def command(self, folder: Path) -> list[str]:
        """How it is started."""

    def answers(self) -> bool:
        """Whether it is ready."""


S = TypeVar("S", bound=Server)


@contextmanager
def running(make: Callable[[int], S]) -> Iterator[S]:
    """A server, started on a free port and stopped at the end."""
    with tempfile.TemporaryDirectory(prefix="ropewalk-server-") as folder:
        server, process = _start(make, Path(folder))
        try:
            yield server
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _start(make: Callable[[int], S], folder: Path) -> tuple[S, subprocess.Popen[bytes]]:
    log = folder / "log"
    for _ in range(_TRIES):
        server = make(_free_port())
        command = [_program(server), *server.command(folder)[1:]]
        with log.open("wb") as out:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        if _answers(server, process):
            return server, process
        process.kill()
        process.wait()
    raise RuntimeError(f"{server.program} does not start: {log.read_text(errors='replace')}")


def start_again(server: Server, folder: Path) -> subprocess.Popen[bytes]:
    """Start a server on a port that is its own, and wait until it answers.

    Somebody who asks for any port may have been given ours for a moment.
    """
    until, log = time.monotonic() + PATIENCE, folder / "log"
    command = [_program(server), *server.command(folder)[1:]]
    while True:
        with log.open("ab") as out:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        if _answers(server, process):
            return process
        told = log.read_text(errors="replace")
        assert "already in use" in told.lower() and time.monotonic() < until, told
        time.sleep(0.1)


def _program(server: Server) -> str:
    found = shutil.which(server.program) or shutil.which(server.program, path="/usr/sbin")
    if found is None:
        pytest.fail(f"{server.program} is not installed: run `python tools/servers.py`")
    return found


def _answers(server: Server, process: subprocess.Popen[bytes]) -> bool:
    until = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < until:
        if server.answers():
            return True
        time.sleep(0.01)
    return False


def _free_port() -> int:
    """A port that is free, and that the system gives to nobody who asks for any.

    So one that is left for a while, as by a server that is killed and started again, is still
    free then. Not by `random`, which Hypothesis seeds: all workers would choose the same.
    """
    while True:
        port = _PORTS.start + secrets.randbelow(len(_PORTS))
        with socket.socket() as found, suppress(OSError):
            found.bind(("127.0.0.1", port))
            return port


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Redis]:
    """A Redis server for the tests of this process."""
    with running(Redis) as server:
        yield server


@pytest.fixture
def redis_url(redis_server: Redis) -> str:
    """The address of a Redis server that is empty."""
    redis_server.clear()
    return redis_server.url


@pytest.fixture(scope="session")
def nats_server() -> Iterator[Nats]:
    """A NATS server for the tests of this process."""
    with running(Nats) as server:
        yield server


@pytest.fixture
def nats_url(nats_server: Nats) -> str:
    """The address of a NATS server; what tests name in it must be their own."""
    return nats_server.url
