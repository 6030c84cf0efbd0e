"""A private Postgres for tests: on a free port of this machine, in a temporary folder."""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import _free_port

PATIENCE = 60.0
"""Seconds after which a server that does not answer has failed."""

USER, PASSWORD = "ropewalk", "s3cret/of:tests"
_UNPRIVILEGED = ("postgres", "nobody")
_ROOM = 2 * 1024**3
_numbers = itertools.count(1)


class Postgres:
    """A server with its own data, which is synced to the disk as it should be."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.port = _free_port()
        self.process: subprocess.Popen[bytes] | None = None

    # Addresses.

    def url(self, database: str = "postgres", *, port: int | None = None) -> str:
        """The address of a database, perhaps through something that listens elsewhere."""
        password = PASSWORD.replace("/", "%2F").replace(":", "%3A")
        return f"postgresql://{USER}:{password}@127.0.0.1:{port or self.port}/{database}"

    def new_database(self) -> str:
        """The address of a database that is empty."""
        name = f"test_{os.getpid()}_{next(_numbers)}"
        self.run(f"CREATE DATABASE {name}")
        return self.url(name)

    def run(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Run a statement as the one who may do everything."""
        import psycopg  # Here, because every test loads this module.

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            # The text is the test's own.
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    # Life.

    def create(self) -> None:
        """Make an empty cluster."""
        self.folder.chmod(0o755)
        self.data.mkdir(mode=0o700)
        secret = self.folder / "password"
        secret.write_text(PASSWORD)
        _hand_over(self.data, secret)
        done = subprocess.run(
            [
                *_as_somebody(), program("initdb"), "--pgdata", str(self.data),
                "--username", USER, "--pwfile", str(secret), "--auth", "scram-sha-256",
                "--encoding", "UTF8", "--locale", "C", "--no-sync",
            ],
            capture_output=True, text=True, check=False, cwd=self.folder,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        self.port = _free_port()  # As late as can be: making a cluster takes seconds.

    def start(self, *, fsync: bool = True) -> None:
        """Start it, and wait until it answers."""
        options = {
            "listen_addresses": "127.0.0.1", "port": str(self.port),
            "fsync": "on" if fsync else "off",
            "unix_socket_directories": "", "max_connections": "120",
            "min_wal_size": "32MB", "max_wal_size": "128MB",
        }  # fmt: skip
        settings = [part for name in options for part in ("-c", f"{name}={options[name]}")]
        until = time.monotonic() + PATIENCE
        self.process = self._launch(settings)
        while not self.answers():
            ended = self.process.poll() is not None  # Before its last words are read.
            log = (self.folder / "log").read_text(errors="replace")[-2000:]
            if time.monotonic() > until:
                raise RuntimeError(f"postgres does not answer: {log}")
            if ended:
                # After a kill, what is left of the old one may take a moment to end, and have
                # our port until then.
                if "pre-existing shared memory" not in log and "Address already in use" not in log:
                    raise RuntimeError(f"postgres does not start: {log}")
                self.process = self._launch(settings)
            time.sleep(0.02)

    def _launch(self, settings: list[str]) -> subprocess.Popen[bytes]:
        path = self.folder / "log"
        # A new file: what is left of a killed server still writes to the old one, and would hide
        # what this one says.
        path.unlink(missing_ok=True)
        with path.open("wb") as log:
            return subprocess.Popen(
                [*_as_somebody(), program("postgres"), "-D", str(self.data), *settings],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
            )  # fmt: skip

    def answers(self) -> bool:
        """Whether it is ready."""
        import psycopg

        with contextlib.suppress(psycopg.OperationalError):
            psycopg.connect(self.url(), connect_timeout=5).close()
            return True
        return False

    def stop(self) -> None:
        """End it in an orderly way, without waiting for clients."""
        self._end(signal.SIGINT)

    def quit(self) -> None:
        """End it at once, when nobody needs its data any more."""
        self._end(signal.SIGQUIT)

    def kill(self) -> None:
        """End it as a crash would, with all its processes: one that is left may still answer."""
        parts = [] if self.process is None else _children(self.process.pid)
        self._end(signal.SIGKILL)
        for pid in parts:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _children(pid: int) -> list[int]:
    """The processes that a process has started, where the system tells."""
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def program(name: str) -> str:
    """Where a program is; of Postgres, the newest version of Debian's comes first."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=_version)
    path = str(found[-1]) if found else shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
    if path is None:
        pytest.fail(f"{name} is not installed: run `python tools/servers.py`")
    return path


def _version(path: Path) -> float:
    try:
        return float(path.parent.parent.name)
    except ValueError:
        return 0.0


def somebody() -> pwd.struct_passwd | None:
    """The user that servers run as which refuse to be root's; None if we are not root."""
    if os.geteuid() != 0:
        return None
    for name in _UNPRIVILEGED:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise RuntimeError("there is no user without rights to run Postgres as")


def _as_somebody() -> list[str]:
    user = somebody()
    if user is None:
        return []
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]


def _hand_over(*paths: Path) -> None:
    user = somebody()
    if user is not None:
        for path in paths:
            os.chown(path, user.pw_uid, user.pw_gid)


def _roomy() -> str | None:
    """A folder in memory if there is a large one: it outlives a killed server, as a disk does."""
    memory = Path("/dev/shm")
    if os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > _ROOM:
        return str(memory)
    return None


@contextlib.contextmanager
def running_postgres() -> Iterator[Postgres]:
    """A server of one's own, which may be stopped and killed."""
    # What is left of a killed one may still write while its folder is removed.
    with tempfile.TemporaryDirectory(
        prefix="ropewalk-postgres-", dir=_roomy(), ignore_cleanup_errors=True
    ) as folder:
        server = Postgres(Path(folder))
        server.create()
        server.start()
        try:
            yield server
        finally:
            server.quit()


@contextlib.contextmanager
def running_pgbouncer(server: Postgres) -> Iterator[int]:
    """PgBouncer in transaction mode in front of a server; the port that it listens on."""
    with tempfile.TemporaryDirectory(prefix="ropewalk-pgbouncer-") as made:
        folder, port = Path(made), _free_port()
        folder.chmod(0o755)
        settings = folder / "pgbouncer.ini"
        settings.write_text(
            "[databases]\n"
            f"* = host=127.0.0.1 port={server.port} user={USER} password={PASSWORD}\n"
            "[pgbouncer]\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 4\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
        )
        _hand_over(settings)
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [*_as_somebody(), program("pgbouncer"), str(settings)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder,
            )  # fmt: skip
        try:
            until = time.monotonic() + PATIENCE
            while not _listens(port):
                told = (folder / "log").read_text(errors="replace")
                assert process.poll() is None and time.monotonic() < until, told
                time.sleep(0.02)
            yield port
        finally:
            process.terminate()
            process.wait()


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE).close()
        return True
    return False


@pytest.fixture(scope="session")
def pgbouncer(postgres: Postgres) -> Iterator[int]:
    """The port of PgBouncer in front of the server of these tests."""
    with running_pgbouncer(postgres) as port:
        yield port


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A server for the tests of this process, which nobody stops."""
    with running_postgres() as server:
        yield server


@pytest.fixture
def postgres_url(postgres: Postgres) -> str:
    """The address of an empty database."""
    return postgres.new_database()
