"""Servers that are killed, stall, or are told nonsense: a bus comes back, and nobody waits."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from ropewalk.coherence import (
    Bus,
    Invalidation,
    NatsBus,
    PostgresBus,
    Receiver,
    RedisBus,
    topic_of,
)
from ropewalk.errors import InvalidInput
from ropewalk.store import space_name
from ropewalk.testing.buses import PATIENCE, Inbox, reaches, ready, settle
from tests.coherence.buses import killable, open_bus, proxied
from tests.postgres import Postgres
from tests.proxy import Proxy

KINDS = ["redis", "postgres", "nats"]
SPACE = space_name("coherence", "servers")
TOPIC = topic_of(SPACE, "plan")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def prefix() -> str:
    return uuid.uuid4().hex


@pytest.fixture
def server_url(kind: str, request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{kind}_url"))


@pytest.fixture
def way(server_url: str) -> Iterator[tuple[Proxy, str]]:
    with proxied(server_url) as found:
        yield found


def closing(*buses: Bus) -> None:
    for bus in buses:
        bus.close()


def test_a_killed_server_that_starts_again_is_found_and_doubt_is_told(kind: str) -> None:
    with killable(kind) as server:
        bus, other = (ready(open_bus(kind, server.url)) for _ in range(2))
        inboxes = {topic_of(SPACE, name): Inbox() for name in ("a", "b", "c")}
        doubt = threading.Event()
        bus.on_gap(doubt.set)
        for topic, inbox in inboxes.items():
            bus.subscribe(topic, inbox)
            settle(bus)
            other.publish(topic, b"before")
            assert inbox.holds(b"before")
        server.kill()
        assert doubt.wait(PATIENCE)
        doubt.clear()
        for _ in range(100):
            other.publish(TOPIC, b"meanwhile")
        server.start()

        assert doubt.wait(PATIENCE)  # Again, now that messages come.
        assert all(reaches(other, topic, inbox, b"after") for topic, inbox in inboxes.items())
        closing(bus, other)


def test_a_bus_may_be_there_before_its_server(kind: str) -> None:
    with killable(kind) as server:
        server.kill()
        bus, inbox, doubt = open_bus(kind, server.url), Inbox(), threading.Event()
        bus.on_gap(doubt.set)
        bus.subscribe(TOPIC, inbox)
        bus.publish(TOPIC, b"early")
        server.start()

        assert doubt.wait(PATIENCE)
        assert reaches(bus, TOPIC, inbox, b"late")
        bus.close()


def test_nobody_waits_for_a_server_that_says_nothing(
    kind: str, way: tuple[Proxy, str], prefix: str
) -> None:
    proxy, url = way
    bus = ready(open_bus(kind, url, prefix))
    bus.subscribe(TOPIC, Inbox())
    proxy.stall()
    for _ in range(1000):
        bus.publish(TOPIC, b"meanwhile")
    bus.subscribe(topic_of(SPACE, "other"), Inbox())
    bus.close()

    # All of this came back while the server still said nothing.
    proxy.resume()


def test_a_server_that_says_nothing_is_given_up_and_doubt_is_told(
    kind: str, way: tuple[Proxy, str], prefix: str
) -> None:
    proxy, url = way
    bus, inbox, doubt = open_bus(kind, url, prefix, patience=1), Inbox(), threading.Event()
    bus.on_gap(doubt.set)
    bus.subscribe(TOPIC, inbox)
    proxy.stall()
    until = threading.Event()
    for _ in range(600):
        if getattr(bus, "failures", 0):
            break
        until.wait(0.05)
    proxy.cut()
    proxy.resume()

    assert doubt.wait(PATIENCE)
    assert reaches(bus, TOPIC, inbox, b"after")
    bus.close()


def test_a_connection_that_the_server_ends_is_made_again(
    kind: str, way: tuple[Proxy, str], prefix: str, server_url: str
) -> None:
    proxy, url = way
    bus, inbox, doubt = ready(open_bus(kind, url, prefix)), Inbox(), threading.Event()
    bus.on_gap(doubt.set)
    bus.subscribe(TOPIC, inbox)
    if kind == "redis":
        redis.Redis.from_url(server_url).client_kill_filter(_type="pubsub")
    elif kind == "postgres":
        with psycopg.connect(server_url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
    else:
        proxy.cut()

    assert doubt.wait(PATIENCE)
    assert reaches(bus, TOPIC, inbox, b"after")
    bus.close()


def test_clients_with_another_prefix_do_not_hear_each_other(kind: str, server_url: str) -> None:
    one, two = (ready(open_bus(kind, server_url, uuid.uuid4().hex)) for _ in range(2))
    inbox, other = Inbox(), Inbox()
    one.subscribe(TOPIC, inbox)
    two.subscribe(TOPIC, other)
    settle(one, two)
    two.publish(TOPIC, b"for two")
    assert other.holds(b"for two")
    one.publish(TOPIC, b"for one")

    assert inbox.holds(b"for one")
    assert inbox.received == [b"for one"]
    closing(one, two)


def test_what_strangers_say_on_redis_is_dropped(redis_url: str, prefix: str) -> None:
    bus, heard = ready(RedisBus(redis_url, prefix=prefix)), Inbox()
    receiver = Receiver(lambda message: heard(message.artifact.encode()))
    bus.subscribe(TOPIC, receiver)
    settle(bus)
    stranger = redis.Redis.from_url(redis_url)
    for nonsense in (b"", b"\x01", b"\xff" * 1000, b"\x01\x91" * 1000):
        stranger.publish(f"{prefix}:bus:{TOPIC}", nonsense)
    bus.publish(TOPIC, Invalidation("plan", 1, 0, 1, "", "").encode())

    assert heard.holds(b"plan")
    assert receiver.dropped == 4
    bus.close()


def test_what_strangers_say_on_postgres_is_dropped(postgres_url: str, prefix: str) -> None:
    from ropewalk.store.postgres.listener import _channel

    bus, heard = ready(PostgresBus(postgres_url, prefix=prefix)), Inbox()
    receiver = Receiver(lambda message: heard(message.artifact.encode()))
    bus.subscribe(TOPIC, receiver)
    settle(bus)
    with psycopg.connect(postgres_url, autocommit=True) as stranger:
        for nonsense in ("", "no base64: ü", "AAAA", "%" * 5000):
            stranger.execute("SELECT pg_notify(%s, %s)", (_channel(prefix, TOPIC), nonsense))
    bus.publish(TOPIC, Invalidation("plan", 1, 0, 1, "", "").encode())

    assert heard.holds(b"plan")
    assert receiver.dropped == 4
    bus.close()


def test_what_postgres_cannot_carry_is_dropped_and_counted(postgres_url: str, prefix: str) -> None:
    bus, inbox = PostgresBus(postgres_url, prefix=prefix), Inbox()
    ready(bus)
    bus.subscribe(TOPIC, inbox)
    settle(bus)
    largest = bytes(bus.message_limit)
    bus.publish(TOPIC, largest + b"x")
    bus.publish(TOPIC, largest)

    assert inbox.holds(largest)
    assert inbox.received == [largest]
    assert bus.lost == 1
    bus.close()


def test_a_bus_does_not_listen_through_a_pooler(
    postgres: Postgres, pgbouncer: int, caplog: pytest.LogCaptureFixture
) -> None:
    bus = PostgresBus(postgres.url(port=pgbouncer))
    with caplog.at_level("WARNING", "ropewalk.coherence"):
        bus.subscribe(TOPIC, Inbox())
        until = time.monotonic() + PATIENCE
        while "cannot listen" not in caplog.text and time.monotonic() < until:
            time.sleep(0.005)  # Who subscribes waits only for a moment.
    bus.close()

    assert "cannot listen through a pooler" in caplog.text


@pytest.mark.parametrize("make", [RedisBus, PostgresBus])
def test_an_address_that_is_none_is_refused_at_once(make: type[RedisBus | PostgresBus]) -> None:
    with pytest.raises(InvalidInput):
        make("http://user:secret@localhost/")


@pytest.mark.parametrize("servers", ["", "nats://", [], ["nats://localhost", ""]])
def test_a_server_of_nats_has_a_host(servers: str | list[str]) -> None:
    with pytest.raises(InvalidInput):
        NatsBus(servers)


def test_a_host_alone_is_a_server_of_nats() -> None:
    assert "at example.org:4222, localhost:4223" in repr(NatsBus(["example.org", "localhost:4223"]))


def test_a_bus_shows_where_it_is_and_no_password() -> None:
    buses = [
        RedisBus("redis://me:secret@example.org:6380/0"),
        PostgresBus("postgresql://me:secret@example.org/db"),
        NatsBus("nats://me:secret@example.org:4223"),
    ]

    assert all("example.org" in repr(bus) for bus in buses)
    assert not any("secret" in repr(bus) for bus in buses)


FORK = """
import os, sys, threading, warnings
warnings.simplefilter("ignore")
from ropewalk.coherence import InProcessBus
from tests.coherence.buses import open_bus

kind, url, prefix = sys.argv[1:]
bus = InProcessBus() if kind == "local" else open_bus(kind, url, prefix)
heard, doubt = threading.Event(), threading.Event()
bus.subscribe("coherence/fork/before", lambda message: heard.set())
bus.on_gap(doubt.set)
while not heard.wait(0.3):
    bus.publish("coherence/fork/before", b"in the parent")
heard.clear()
doubt.clear()
child = os.fork()
if child == 0:
    ok = False
    try:
        after = threading.Event()
        bus.subscribe("coherence/fork/after", lambda message: after.set())
        assert doubt.wait(30), "no doubt in the child"
        for _ in range(100):
            bus.publish("coherence/fork/after", b"in the child")
            bus.publish("coherence/fork/before", b"in the child")
            if after.wait(0.3) and heard.wait(0.3):
                break
        ok = after.is_set() and heard.is_set()
    finally:
        os._exit(0 if ok else 1)
_, status = os.waitpid(child, 0)
assert status == 0, status
heard.clear()
bus.publish("coherence/fork/before", b"in the parent, after the child")
assert heard.wait(60)
bus.close()
print("well")
"""


@pytest.mark.parametrize("forked", ["local", *KINDS])
def test_a_forked_process_has_a_bus_of_its_own(
    forked: str, request: pytest.FixtureRequest, prefix: str
) -> None:
    url = "" if forked == "local" else str(request.getfixturevalue(f"{forked}_url"))
    done = subprocess.run(
        [sys.executable, "-c", FORK, forked, url, prefix],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )

    assert done.stdout == "well\n", done.stderr
