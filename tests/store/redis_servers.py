"""Redis servers that tests configure, kill and start again on the same data."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from tests.servers import PATIENCE, Redis, _answers, _free_port

KEEPS_ALL = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"}
"""What `full` asks for."""


class Configured(Redis):
    """A server with settings of its own, on a port and a folder that stay the same."""

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        super().__init__(_free_port())
        self._folder, self._settings = folder, settings
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
        with (self._folder / "log").open("ab") as out:
            self._process = subprocess.Popen(
                self.command(self._folder), stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
        assert _answers(self, self._process), (self._folder / "log").read_text()

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
def configured(folder: Path, **settings: str) -> Iterator[Configured]:
    """A running server, and its end. Underscores stand for the dashes of settings."""
    spelled = {name.replace("_", "-"): value for name, value in settings.items()}
    server = Configured(folder, spelled)
    server.start()
    try:
        yield server
    finally:
        server.kill()


def client(url: str) -> redis.Redis:
    """A plain client, to do what another program would."""
    found: redis.Redis = redis.Redis.from_url(url)
    return found
