"""Starts the servers that sides work on: on a free port of this machine, in a folder of their own.

Only the standard library is needed to start one, because the peers' interpreter does it too.
Each is durable as its note says, and ends with the process that started it.
"""

from __future__ import annotations

import ctypes
import json
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlsplit

from bench._clock import folder_bytes
from bench._processes import tree_cpu_seconds, tree_memory_bytes

PATIENCE = 60.0
"""Seconds after which a server that does not answer has failed."""

_TRIES = 5  # Somebody else may take a port between our finding it free and its use.
_PARENT_DEATH_SIGNAL = 1  # As prctl numbers it.


class Server(ABC):
    """Something that keeps what clients commit."""

    serves: ClassVar[bool] = True
    """Whether it is a process of its own."""
    ends_by: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    @abstractmethod
    def url(self) -> str:
        """What a client opens."""

    @abstractmethod
    def stored_bytes(self) -> int:
        """The bytes of what it holds."""

    def log_bytes(self) -> int:
        """All bytes that it ever wrote to its log, from which it would recover."""
        return 0

    def cpu_seconds(self) -> float:
        """CPU of all its processes, also of those that have ended."""
        return tree_cpu_seconds(self._process.pid) if self._process else 0.0

    def memory_bytes(self) -> int:
        """The memory of all its processes, what they share counted once."""
        return tree_memory_bytes(self._process.pid) if self._process else 0

    def start(self) -> None:  # noqa: B027 - a folder is there
        """Start it, and wait until it answers."""

    def stop(self) -> None:
        """End it; nobody needs its data any more."""
        if self._process is None:
            return
        self._process.send_signal(self.ends_by)
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Folder(Server):
    """No server: the embedded store works in this process, in a folder."""

    serves = False

    @property
    def url(self) -> str:
        return str(self.folder / "store")

    def stored_bytes(self) -> int:
        return folder_bytes(self.folder)


class _Listening(Server):
    """A server with a port."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.port = 0

    @abstractmethod
    def _command(self) -> list[str]:
        """How it is started."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether it is ready."""

    def start(self) -> None:
        for _ in range(_TRIES):
            self.port = _free_ports(1)[0]
            self._process = self._begin(self._command())
            if self._ready(self._process):
                return
            self._process.kill()
            self._process.wait()
        said = (self.folder / "log").read_text(errors="replace")
        raise RuntimeError(f"the server does not start: {said[-300:]}")

    def _begin(self, command: list[str]) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("wb") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                preexec_fn=self._end_with_parent,  # noqa: PLW1509 - there are no threads yet
                **self._identity(),
            )

    def _end_with_parent(self) -> None:
        # A unit that takes too long is killed, and must not leave its server behind.
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, int(self.ends_by))

    def _identity(self) -> dict[str, Any]:
        """The user that it runs as, if that is not ours."""
        return {}

    def _ready(self, process: subprocess.Popen[bytes]) -> bool:
        until = time.monotonic() + PATIENCE
        while process.poll() is None and time.monotonic() < until:
            if self._answers():
                return True
            time.sleep(0.02)
        return False


class Postgres(_Listening):
    """Postgres with its own defaults: fsync and synchronous_commit are on."""

    ends_by = signal.SIGQUIT
    _name: ClassVar[str] = "bench"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._password = secrets.token_urlsafe(12)

    @property
    def url(self) -> str:
        return f"postgresql://{self._name}:{self._password}@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        data, secret = self.folder / "data", self.folder / "password"
        data.mkdir(mode=0o700)
        secret.write_text(self._password)
        if user := _unprivileged():
            for path in (data, secret):
                os.chown(path, user.pw_uid, user.pw_gid)
            _let_through(self.folder)
        made = self._begin([
            _postgres_program("initdb"), "--pgdata", str(data), "--username", self._name,
            "--pwfile", str(secret), "--auth", "scram-sha-256", "--encoding", "UTF8",
            "--locale", "C", "--no-sync",
        ])  # fmt: skip
        if made.wait(PATIENCE) != 0:
            raise RuntimeError(f"initdb failed: {(self.folder / 'log').read_text()[-300:]}")
        super().start()

    def _command(self) -> list[str]:
        options = {
            "listen_addresses": "127.0.0.1", "port": str(self.port), "max_connections": "100",
            "unix_socket_directories": "", "fsync": "on", "synchronous_commit": "on",
        }  # fmt: skip
        settings = [part for name in options for part in ("-c", f"{name}={options[name]}")]
        return [_postgres_program("postgres"), "-D", str(self.folder / "data"), *settings]

    def _identity(self) -> dict[str, Any]:
        user = _unprivileged()
        if user is None:
            return {}
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}

    def _answers(self) -> bool:
        asked = [_postgres_program("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(asked, check=False).returncode == 0

    def stored_bytes(self) -> int:
        return self._asked("SELECT pg_database_size(current_database())")

    def log_bytes(self) -> int:
        return self._asked("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn")

    def _asked(self, question: str) -> int:
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            row = connection.execute(question).fetchone()
        assert row is not None, question
        return int(row[0])


class Redis(_Listening):
    """Redis that syncs its log before it answers, and rewrites it only when asked."""

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def _command(self) -> list[str]:
        options = {
            "bind": "127.0.0.1", "port": str(self.port), "dir": str(self.folder), "save": "",
            "appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction",
            "auto-aof-rewrite-percentage": "0",
        }  # fmt: skip
        pairs = [part for name in options for part in (f"--{name}", options[name])]
        return [_program("redis-server"), *pairs]

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(16) == b"+PONG\r\n"
        except OSError:
            return False

    def stored_bytes(self) -> int:
        import redis

        with redis.Redis.from_url(self.url) as client:
            found = client.info("memory")
        # Clients come and go, and the log waits in memory: neither is what is stored.
        passing = ("mem_clients_normal", "mem_aof_buffer")
        return int(found["used_memory"]) - sum(int(found[name]) for name in passing)

    def log_bytes(self) -> int:
        return folder_bytes(self.folder / "appendonlydir")


class Seaweed(_Listening):
    """SeaweedFS as it comes, which speaks S3."""

    ends_by = signal.SIGKILL  # Its own end takes seconds.
    _bucket: ClassVar[str] = "bench"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._secret = secrets.token_hex(12)

    @property
    def url(self) -> str:
        return (
            f"s3://bench:{self._secret}@{self._bucket}/store"
            f"?endpoint=http://127.0.0.1:{self.port}&region=us-east-1"
        )

    def driver(self) -> Any:
        """A client of the whole bucket."""
        return s3_driver(self.url, prefix="")

    def _command(self) -> list[str]:
        data, who = self.folder / "data", self.folder / "s3.json"
        data.mkdir(exist_ok=True)
        key = {"accessKey": "bench", "secretKey": self._secret}
        one = {"name": "bench", "credentials": [key], "actions": ["Admin", "Read", "Write", "List"]}
        who.write_text(json.dumps({"identities": [one]}))
        names = ("master", "volume", "filer")
        flags = [f"{name}.{part}" for name in names for part in ("port", "port.grpc")]
        ports = dict(zip([*flags, "s3.port.grpc"], _free_ports(7), strict=True))
        return [
            _program("weed"), f"-logdir={self.folder}", "server", f"-dir={data}",
            "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false",
            "-master.volumeSizeLimitMB=256", "-volume.max=100", "-s3", f"-s3.config={who}",
            "-s3.iam=false", "-s3.port.iceberg=0", "-s3.port.lance=0", f"-s3.port={self.port}",
            f"-s3.localSocket={self.folder}/s3.sock",
            f"-filer.localSocket={self.folder}/filer.sock",
            *(f"-{name}={port}" for name, port in ports.items()),
        ]  # fmt: skip

    def _answers(self) -> bool:
        """Whether it keeps what it is given: some of its parts are ready before others."""
        import obstore
        from obstore.exceptions import BaseError

        try:
            obstore.put(self.driver(), "ready", b"yes")
        except (BaseError, OSError):
            return False
        return True

    def stored_bytes(self) -> int:
        import obstore

        return sum(one["size"] for page in obstore.list(self.driver()) for one in page)


class Nats(_Listening):
    """NATS without anything that lasts, as a bus needs it."""

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def _command(self) -> list[str]:
        return [_program("nats-server"), "--addr", "127.0.0.1", "--port", str(self.port)]

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                return connection.recv(4) == b"INFO"
        except OSError:
            return False

    def stored_bytes(self) -> int:
        return 0


def s3_driver(url: str, prefix: str) -> Any:
    """A client of a bucket, for what is not ours."""
    from obstore.store import S3Store

    parts = urlsplit(url)
    settings = dict(parse_qsl(parts.query))
    return S3Store(
        parts.hostname or "",
        prefix=prefix or None,
        endpoint=settings["endpoint"],
        region=settings["region"],
        access_key_id=parts.username,
        secret_access_key=parts.password,
        client_options={"allow_http": True, "timeout": "20s"},
        retry_config={"max_retries": 0},
    )


SERVERS: dict[str, type[Server]] = {
    "sqlite": Folder,
    "postgres": Postgres,
    "redis": Redis,
    "s3": Seaweed,
    "nats": Nats,
}


@contextmanager
def running(name: str, folder: Path) -> Iterator[Server]:
    """A server of a kind with its data in a folder; it ends with the block."""
    server = SERVERS[name](folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def _unprivileged() -> pwd.struct_passwd | None:
    """The user for a server that refuses to be root's; None if we are not root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise RuntimeError("there is no user without rights to run Postgres as")


def _let_through(folder: Path) -> None:
    """Let another user pass through the temporary folders that we are in."""
    for one in (folder, *folder.parents):
        mode = one.stat().st_mode
        if mode & 0o001:
            return
        one.chmod(mode | 0o011)


def _postgres_program(name: str) -> str:
    found = Path("/usr/lib/postgresql").glob(f"*/bin/{name}")
    newest = sorted(found, key=lambda path: [int(part) for part in re.findall(r"\d+", str(path))])
    return str(newest[-1]) if newest else _program(name)


def _program(name: str) -> str:
    beside = Path(sysconfig.get_path("scripts")) / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise RuntimeError(f"{name} is not installed: run `python tools/servers.py`")
    return found


def _free_ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    ports: list[int] = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports
