"""Sees to it that the servers are installed that tests run against. `make test` calls this.

It only installs. The tests start and stop servers themselves, on free ports and in temporary
folders: see tests/servers.py.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple


class Server(NamedTuple):
    """A program that tests start, and the Debian package that brings it."""

    program: str
    package: str

    def is_there(self) -> bool:
        """Whether it is on the PATH, or where Debian keeps what users do not start."""
        if shutil.which(self.program) or Path("/usr/sbin", self.program).exists():
            return True
        return any(Path("/usr/lib/postgresql").glob(f"*/bin/{self.program}"))


SERVERS = [
    Server("postgres", "postgresql"),
    Server("pgbouncer", "pgbouncer"),
    Server("redis-server", "redis-server"),
    Server("nats-server", "nats-server"),
]
"""Those that Debian has. The S3 server comes with a package from PyPI, in the extra `dev`."""

POLICY = Path("/usr/sbin/policy-rc.d")
"""What Debian asks before it starts the service of a package that it has installed."""


def main() -> int:
    missing = absent()
    if missing and os.geteuid() == 0 and shutil.which("apt-get") is not None:
        print(f"installing {', '.join(server.program for server in missing)} with apt-get")
        if install([server.package for server in missing]) != 0:
            return 1
        missing = absent()
    if not missing:
        return 0
    print(
        f"the tests need {', '.join(server.program for server in missing)}, which is not "
        f"installed: run `apt-get install {' '.join(server.package for server in missing)}` as "
        "root, or put it on the PATH in another way.",
        file=sys.stderr,
    )
    return 1


def absent() -> list[Server]:
    """The servers that are not installed."""
    return [server for server in SERVERS if not server.is_there()]


def install(packages: list[str]) -> int:
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with services_not_started():
        for command in (["update"], ["install", "--yes", "--no-install-recommends", *packages]):
            whole = ["apt-get", "--quiet", *command]
            done = subprocess.run(whole, env=quiet, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                print(done.stdout + done.stderr, file=sys.stderr)
                print(f"`apt-get {' '.join(command)}` failed.", file=sys.stderr)
                return 1
    if Path("/run/systemd/system").is_dir():
        subprocess.run(["systemctl", "--quiet", "disable", *packages], check=False)
    return 0


@contextmanager
def services_not_started() -> Iterator[None]:
    """Let Debian install packages without starting anything."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()


if __name__ == "__main__":
    sys.exit(main())
