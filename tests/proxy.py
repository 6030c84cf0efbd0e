"""A network that can be bad: a small proxy between a client and a server, for tests.

with Proxy("127.0.0.1", port) as proxy:
    client = connect(proxy.host, proxy.port)
    proxy.stall()      # nothing goes through any more, in either direction
    proxy.resume()     # what waited goes on
    proxy.cut()        # every connection ends at once; new ones are taken
    proxy.refuse()     # every connection ends, and new ones are refused
    proxy.accept()     # new ones are taken again
    proxy.delay = 0.1  # seconds that each piece of data waits, each way
    proxy.drop_replies()           # the server hears and acts, its answers are lost,
                                   # and each connection ends with the first of them
    proxy.drop_replies(after=b"COMMIT")  # ... of what a client sends from this on
    proxy.drop_replies(once=True)  # ... of one connection only, and then of none
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from functools import partial

_SIZE = 256 * 1024
_SOON = 0.05  # Seconds after which a waiting thread looks whether anything has changed.


class Proxy:
    """Listens on a free port of this machine and hands everything on to a server."""

    def __init__(self, host: str, port: int) -> None:
        self.host = "127.0.0.1"
        self.delay = 0.0
        self.server = (host, port)
        """Where the server is; it may move."""
        self.lost = threading.Event()
        """Set when a reply was dropped."""
        self._flowing = threading.Event()
        self._flowing.set()
        self._refusing = False
        self._closed = False
        self._dropping: bytes | None = None
        self._drops_once = False
        self.pieces = 0
        """How many pieces of data came from clients, since `fail_at`."""
        self._fails_at = 0
        self._heard = False
        self._lock = threading.Lock()
        self._pairs: set[_Pair] = set()
        # Never listens: it keeps the port for us while new connections are refused.
        self._place = socket.socket()
        self._place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._place.bind((self.host, 0))
        self.port: int = self._place.getsockname()[1]
        self._listener = self._new_listener()
        self._start(self._listen)

    # What a test says.

    def stall(self) -> None:
        """Hold everything back: connections are taken, and nothing is ever answered."""
        self._flowing.clear()

    def resume(self) -> None:
        """Let everything go on that was held back."""
        self._flowing.set()

    def cut(self) -> None:
        """End every connection at once; new ones are taken."""
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            pair.end()

    def refuse(self) -> None:
        """End every connection, and refuse new ones."""
        self._refusing = True
        self._stop_listening()
        self.cut()

    def accept(self) -> None:
        """Take new connections again."""
        self._listener = self._new_listener()
        self._refusing = False
        self._start(self._listen)

    def drop_replies(self, after: bytes = b"", *, once: bool = False) -> None:
        """Lose the next reply on each connection, once a client has sent `after`.

        What the client sends reaches the server. The connection ends in place of the reply.
        With `once`, only the first connection that sends it loses one.
        """
        self.lost.clear()
        with self._lock:
            self._dropping, self._drops_once = after, once

    def fail_at(self, piece: int, *, heard: bool = False) -> None:
        """End a connection at the n-th piece that any client sends, counted from now.

        The server hears it or not; the client gets no answer either way.
        """
        self.lost.clear()
        with self._lock:
            self.pieces, self._fails_at, self._heard = 0, piece, heard

    def keep_replies(self) -> None:
        """Lose no more replies."""
        self._dropping = None

    @property
    def connections(self) -> int:
        """How many there are now."""
        with self._lock:
            return len(self._pairs)

    def close(self) -> None:
        """End everything."""
        self._closed = True
        self._stop_listening()
        self._place.close()
        self.cut()
        self._flowing.set()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # Inside.

    def _new_listener(self) -> socket.socket:
        return socket.create_server((self.host, self.port), backlog=128, reuse_port=True)

    def _stop_listening(self) -> None:
        with contextlib.suppress(OSError):  # Wakes who waits in `accept`, which `close` does not.
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _listen(self) -> None:
        listener = self._listener
        while not self._closed and not self._refusing:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            self._start(partial(self._serve, client))

    def _serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self.server)
        except OSError:
            _abort(client)
            return
        for one in (client, server):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pair = _Pair(client, server)
        with self._lock:
            self._pairs.add(pair)
        if self._closed or self._refusing:
            pair.end()
        self._start(lambda: self._pump(pair, client, server))
        self._pump(pair, server, client)
        with self._lock:
            self._pairs.discard(pair)

    def _pump(self, pair: _Pair, source: socket.socket, target: socket.socket) -> None:
        """Carry what comes from one side to the other, until one of them ends."""
        try:
            while data := source.recv(_SIZE):
                self._wait(pair)
                if source is pair.client:
                    self._listen_to(pair, data)
                elif pair.doomed:
                    self.lost.set()
                    break
                target.sendall(data)
        except OSError:
            pass
        pair.end()

    def _wait(self, pair: _Pair) -> None:
        if self.delay:
            time.sleep(self.delay)
        while not self._flowing.wait(_SOON):
            if pair.ended or self._closed:
                raise OSError("ended while it waited")

    def _listen_to(self, pair: _Pair, data: bytes) -> None:
        with self._lock:
            if self._dropping is not None and self._dropping in data:
                pair.doomed = True
                if self._drops_once:
                    self._dropping = None
            self.pieces += 1
            fails, heard = self.pieces == self._fails_at, self._heard
        if fails and heard:
            pair.doomed = True
        elif fails:
            self.lost.set()
            raise OSError("ended by the test")

    @staticmethod
    def _start(work: Callable[[], None]) -> None:
        threading.Thread(target=work, name="proxy", daemon=True).start()


class _Pair:
    """Two connections that are one to a client."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client, self.server = client, server
        self.doomed = False
        self.ended = False

    def end(self) -> None:
        """End both, at once."""
        self.ended = True
        for one in (self.client, self.server):
            with contextlib.suppress(OSError):  # Wakes the thread that reads from it.
                one.shutdown(socket.SHUT_RDWR)
            _abort(one)


def _abort(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.close()
