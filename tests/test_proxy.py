"""The proxy that other tests make a bad network with."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.proxy import Proxy

PATIENCE = 10.0


@pytest.fixture
def heard() -> list[bytes]:
    return []


@pytest.fixture
def proxy(heard: list[bytes]) -> Iterator[Proxy]:
    """In front of a server that answers what it is told."""
    listener = socket.create_server(("127.0.0.1", 0))

    def talk(client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            while data := client.recv(100):
                heard.append(data)
                client.sendall(data.upper())

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=talk, args=(client,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    with Proxy("127.0.0.1", listener.getsockname()[1]) as made:
        yield made
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection((proxy.host, proxy.port), timeout=PATIENCE)


def ask(client: socket.socket, text: bytes) -> bytes:
    client.sendall(text)
    try:
        return client.recv(100)
    except ConnectionResetError:
        return b""


def test_everything_is_handed_on(proxy: Proxy) -> None:
    with connect(proxy) as one, connect(proxy) as other:
        assert [ask(one, b"a"), ask(other, b"b"), ask(one, b"c")] == [b"A", b"B", b"C"]


def test_cut_ends_connections_and_takes_new_ones(proxy: Proxy) -> None:
    with connect(proxy) as client:
        ask(client, b"a")
        proxy.cut()

        assert client.recv(100) == b""
    with connect(proxy) as again:
        assert ask(again, b"b") == b"B"


def test_refuse_lets_nobody_in_until_accept(proxy: Proxy) -> None:
    with connect(proxy) as client:
        ask(client, b"a")
        proxy.refuse()

        assert client.recv(100) == b""
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)
    proxy.accept()
    with connect(proxy) as again:
        assert ask(again, b"b") == b"B"


def test_stall_holds_everything_back_until_resume(proxy: Proxy, heard: list[bytes]) -> None:
    with connect(proxy) as client:
        ask(client, b"a")
        proxy.stall()
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            ask(client, b"b")

        assert heard == [b"a"]
        client.settimeout(PATIENCE)
        proxy.resume()
        assert client.recv(100) == b"B"


def test_a_dropped_reply_was_heard_and_ends_the_connection(
    proxy: Proxy, heard: list[bytes]
) -> None:
    with connect(proxy) as client:
        proxy.drop_replies(after=b"commit")

        assert ask(client, b"begin") == b"BEGIN"
        assert ask(client, b"commit") == b""
        assert proxy.lost.is_set()
        assert heard == [b"begin", b"commit"]
    proxy.keep_replies()
    with connect(proxy) as again:
        assert ask(again, b"commit") == b"COMMIT"


def test_one_reply_is_dropped_where_one_is_wanted(proxy: Proxy, heard: list[bytes]) -> None:
    proxy.drop_replies(after=b"commit", once=True)
    with connect(proxy) as client:
        assert ask(client, b"commit") == b""
        assert proxy.lost.is_set()
    with connect(proxy) as again:
        assert ask(again, b"commit") == b"COMMIT"


@pytest.mark.parametrize("heard_it", [True, False])
def test_a_connection_ends_at_the_piece_that_is_told(
    proxy: Proxy, heard: list[bytes], heard_it: bool
) -> None:
    with connect(proxy) as client:
        ask(client, b"a")
        proxy.fail_at(2, heard=heard_it)

        assert ask(client, b"b") == b"B"
        assert ask(client, b"c") == b""
        assert proxy.lost.is_set()
        assert heard == [b"a", b"b", *([b"c"] if heard_it else [])]
    with connect(proxy) as again:
        assert ask(again, b"d") == b"D"
