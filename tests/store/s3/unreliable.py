"""A server in front of a bucket that answers twice, late or not at all."""

from __future__ import annotations

import http.client
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import urlsplit

FAULTS = ("unheard", "unanswered", "late", "twice", "slow")
"""It never hears of a request; does it and does not answer; does it when the client has given up;
does it twice; takes its time."""


class Answer(NamedTuple):
    """What the server said."""

    status: int
    headers: list[tuple[str, str]]
    data: bytes


class Unreliable:
    """Hands requests on to a server, and sometimes fails in one of these ways."""

    def __init__(self, endpoint: str, seed: int, often: float) -> None:
        place = urlsplit(endpoint)
        assert place.hostname and place.port
        self._server = place.hostname, place.port
        self._choose, self._often = random.Random(seed), often
        self._lock = threading.Lock()
        self._late: list[threading.Thread] = []
        self.done: Counter[str] = Counter()
        """How often it did what."""

    def fault(self) -> str:
        """What goes wrong with the next request, if anything does."""
        with self._lock:
            failing = self._choose.random() < self._often
            found = self._choose.choice(FAULTS) if failing else "well"
            self.done[found] += 1
            return found

    def wait(self) -> float:
        """Seconds that somebody is late."""
        with self._lock:
            return self._choose.random() * 0.4

    def ask(self, request: Request) -> Answer:
        """Have the server do it."""
        with closing(http.client.HTTPConnection(*self._server, timeout=30)) as connection:
            connection.putrequest(request.command, request.path, True, True)
            for name, value in request.headers.items():
                connection.putheader(name, value)
            connection.endheaders(request.body)
            found = connection.getresponse()
            return Answer(found.status, found.getheaders(), found.read())

    def do_later(self, work: Callable[[], object]) -> None:
        """Do something when nobody waits for it any more."""

        def late() -> None:
            time.sleep(self.wait())
            with suppress(OSError, http.client.HTTPException):
                work()

        thread = threading.Thread(target=late)
        thread.start()
        self._late.append(thread)

    def settle(self) -> None:
        """Wait for all that is late."""
        for thread in self._late:
            thread.join()


class Request(BaseHTTPRequestHandler):
    """One request, and what becomes of it."""

    protocol_version = "HTTP/1.1"
    between: Unreliable
    body: bytes

    def _answer(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        between, fault = self.between, self.between.fault()
        if fault in ("unheard", "late"):
            self.close_connection = True
            if fault == "late":
                between.do_later(lambda: between.ask(self))
            return
        if fault == "slow":
            time.sleep(between.wait())
        found = between.ask(self)
        if fault == "twice":
            found = between.ask(self)
        if fault == "unanswered":
            self.close_connection = True
            return
        self.send_response_only(found.status)
        length = len(found.data)
        for name, value in found.headers:
            if name.lower() == "content-length":
                length = int(value)  # That of a HEAD is not what it holds.
            elif name.lower() not in ("transfer-encoding", "connection"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(found.data)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _answer  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Nothing: the tests look at what clients say."""


class Server(ThreadingHTTPServer):
    """Says nothing of clients that were killed."""

    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing: they hear nothing either."""


@contextmanager
def unreliable(endpoint: str, seed: int, often: float) -> Iterator[tuple[str, Unreliable]]:
    """Such a server, and where it answers."""
    between = Unreliable(endpoint, seed, often)
    handler = type("Handler", (Request,), {"between": between})
    with Server(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", between
        finally:
            server.shutdown()
            thread.join()
            between.settle()
