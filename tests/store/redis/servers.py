"""Redis servers that tests configure, kill and start again on the same data."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import redis

from tests.servers import PATIENCE, Redis, _free_port, start_again

KEEPS_ALL: Mapping[str, str] = {
    "appendonly": "yes",
    "appendfsync": "always",
    "maxmemory-policy": "noeviction",
}
"""What `full` asks for."""


class Configured(Redis):
    """A server with settings of its own, on a port and a folder that stay the same."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        # A node of a cluster also takes the port 10,000 above.
        ports = (port for port in iter(_free_port, None) if port < 22_000)
        super().__init__(next(ports))
        self.folder, self._settings = folder, settings
        self._process: subprocess.Popen[bytes] | None = None

    def command(self, folder: Path) -> list[str]:
        options = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "dir": str(folder),
            "save": "",
            **self._settings,
        }
        return [self.program, *(part for at in options for part in (f"--{at}", options[at]))]

    def answers(self) -> bool:
        try:  # One that wants a password has started, and one that reads its data has not.
            return not self._ask(b"GET x").startswith(b"-LOADING")
        except OSError:
            return False

    def start(self) -> None:
        """Start it, or start it again, and wait until it answers."""
        self._process = start_again(self, self.folder)

    def kill(self) -> None:
        """Kill it, as the system does when there is no memory."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(PATIENCE)

    def pause(self) -> None:
        """Let it hang: it takes connections and does nothing."""
        assert self._process is not None
        os.kill(self._process.pid, 19)

    def go_on(self) -> None:
        """Let it do what it was asked for meanwhile."""
        assert self._process is not None
        os.kill(self._process.pid, 18)


@contextmanager
def configured(settings: Mapping[str, str]) -> Iterator[Configured]:
    """A running server with these settings, and its end.

    Its folder is in memory where that is possible: what a killed process wrote is there too.
    """
    memory = Path("/dev/shm")
    place = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place, prefix="ropewalk-server-") as folder:
        server = Configured(Path(folder), settings)
        server.start()
        try:
            yield server
        finally:
            server.kill()


def client(url: str) -> redis.Redis:
    """A plain client, to do what another program would."""
    found: redis.Redis = redis.Redis.from_url(url)
    return found
