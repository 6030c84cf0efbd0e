"""Which bus serves which engine, that clients share it, and that it tells what others commit."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis

import ropewalk
from ropewalk.coherence import (
    Bus,
    CoherenceCore,
    InProcessBus,
    Invalidation,
    LogBus,
    choose_bus,
    place_of,
    space_topic,
    topic_of,
)
from ropewalk.coherence.remote_bus import Handle, RemoteBus
from ropewalk.store import CachedStore, MemoryStore, PostgresStore, Store, space_name
from ropewalk.testing import BusContract
from ropewalk.testing.buses import PATIENCE, BusOpener, Inbox, ready
from tests.coherence.buses import proxied
from tests.postgres import Postgres

NAME = "choosing"
SPACE = space_name("coherence", NAME)
TOPIC = topic_of(SPACE, "plan")


def chosen(store: Store) -> Bus:
    """The bus behind the handle that a client gets."""
    handle = choose_bus(store, SPACE)
    assert isinstance(handle, Handle)
    handle.close()
    return handle.bus


class Heard:
    """Keeps the invalidations that a subscriber receives."""

    def __init__(self) -> None:
        self.inbox = Inbox()

    def __call__(self, message: bytes) -> None:
        self.inbox(message)

    def reaches(self, version: int) -> bool:
        """Wait for a version."""
        until = time.monotonic() + PATIENCE
        number = 1
        while time.monotonic() < until and self.inbox.counts(number):
            if self.messages[-1].version >= version:
                return True
            number += 1
        return False

    @property
    def messages(self) -> list[Invalidation]:
        return [Invalidation.decode(one) for one in self.inbox.received]


# The choice.


def test_memory_gets_a_bus_in_process() -> None:
    assert isinstance(chosen(MemoryStore()), InProcessBus)


def test_store_objects_on_the_same_memory_share_a_bus() -> None:
    store = MemoryStore()
    one, two = choose_bus(store, SPACE), choose_bus(store.another(), SPACE)
    inbox = Inbox()
    one.subscribe(TOPIC, inbox)
    two.publish(TOPIC, b"news")

    assert inbox.holds(b"news")
    one.close()
    two.close()


def test_files_and_sqlite_get_a_bus_that_follows_the_log(tmp_path: Path) -> None:
    for url in (str(tmp_path / "one.ropewalk"), f"file://{tmp_path / 'two'}"):
        with ropewalk.open(url) as store:
            assert isinstance(chosen(store), LogBus)


def test_a_cache_in_front_changes_nothing() -> None:
    assert isinstance(chosen(CachedStore(MemoryStore())), InProcessBus)


def test_redis_serves_as_its_own_bus(redis_url: str) -> None:
    with ropewalk.open(f"{redis_url}?durability=relaxed") as store:
        assert isinstance(chosen(store), RemoteBus)


def test_postgres_serves_as_its_own_bus(postgres_url: str) -> None:
    with ropewalk.open(postgres_url) as store:
        assert isinstance(chosen(store), RemoteBus)


def test_postgres_behind_a_pooler_is_followed_by_its_log(
    postgres: Postgres, pgbouncer: int
) -> None:
    with PostgresStore(postgres.url(port=pgbouncer), schema="choosing") as store:
        assert isinstance(chosen(store), LogBus)


def test_postgres_behind_a_pooler_with_a_way_to_the_server_serves_too(
    postgres: Postgres, pgbouncer: int
) -> None:
    pooled = postgres.url(port=pgbouncer)
    with PostgresStore(pooled, schema="choosing", listen_dsn=postgres.url()) as store:
        assert isinstance(chosen(store), RemoteBus)


# Sharing.


def test_a_hundred_clients_share_the_connections(redis_url: str) -> None:
    with proxied(f"{redis_url}?durability=relaxed") as (proxy, url), ropewalk.open(url) as store:
        before = proxy.connections
        handles = [ready(choose_bus(store, SPACE)) for _ in range(100)]
        inboxes = [Inbox() for _ in handles]
        for handle, inbox in zip(handles, inboxes, strict=True):
            handle.subscribe(TOPIC, inbox)
        handles[0].publish(TOPIC, b"news")

        assert all(inbox.holds(b"news") for inbox in inboxes)
        assert proxy.connections - before <= 2
        for handle in handles:
            handle.close()


def test_watch_and_the_bus_of_a_store_have_one_listener(redis_url: str) -> None:
    with (
        ropewalk.open(f"{redis_url}?durability=relaxed") as store,
        redis.Redis.from_url(redis_url) as admin,
    ):
        handle, inbox, seen = ready(choose_bus(store, SPACE)), Inbox(), Inbox()
        handle.subscribe(TOPIC, inbox)
        watching = threading.Thread(target=lambda: seen(next(store.watch(SPACE)).space.encode()))
        watching.start()
        handle.publish(TOPIC, b"news")
        assert inbox.holds(b"news")

        with ropewalk.open(f"{redis_url}?durability=relaxed") as other:
            other.commit(SPACE)
        assert seen.holds(SPACE.encode())
        assert len(admin.client_list(_type="pubsub")) == 1
        watching.join(PATIENCE)
        handle.close()


def test_watch_and_the_bus_of_postgres_have_one_listener(postgres_url: str) -> None:
    def connections() -> int:
        asked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        with psycopg.connect(postgres_url) as admin:
            found = admin.execute(asked).fetchone()
        assert found is not None
        return int(found[0])

    with ropewalk.open(postgres_url) as store:
        handle = ready(choose_bus(store, SPACE))
        handle.subscribe(TOPIC, Inbox())
        before = connections()
        assert list(store.watch(SPACE, timeout=0.5)) == []

        assert connections() == before
        handle.close()


def test_a_bus_outlives_the_store_that_it_came_with(redis_url: str) -> None:
    store = ropewalk.open(f"{redis_url}?durability=relaxed")
    handle, inbox = ready(choose_bus(store, SPACE)), Inbox()
    handle.subscribe(TOPIC, inbox)
    store.close()
    handle.publish(TOPIC, b"news")

    assert inbox.holds(b"news")
    handle.close()


def test_a_client_that_ends_leaves_the_others_alone() -> None:
    store = MemoryStore()
    one, two = choose_bus(store, SPACE), choose_bus(store, SPACE)
    ended, inbox = Inbox(), Inbox()
    one.subscribe(TOPIC, ended)
    two.subscribe(TOPIC, inbox)
    one.close()
    one.close()
    one.publish(TOPIC, b"from nobody")
    two.publish(TOPIC, b"news")

    assert inbox.holds(b"news")
    assert inbox.received == [b"news"]
    assert ended.received == []
    two.close()


def test_what_one_client_missed_is_no_doubt_for_another() -> None:
    store = MemoryStore()
    slow, quick = choose_bus(store, SPACE), choose_bus(store, SPACE)
    missed, wrong, goes_on = threading.Event(), threading.Event(), threading.Event()
    inbox = Inbox()
    slow.on_gap(missed.set)
    quick.on_gap(wrong.set)

    def stall(_: bytes) -> None:
        goes_on.wait(PATIENCE)

    slow.subscribe(TOPIC, stall)
    quick.subscribe(TOPIC, inbox)
    for number in range(2000):
        quick.publish(TOPIC, str(number).encode())
        assert inbox.counts(number - 100)

    assert missed.wait(PATIENCE)
    assert not wrong.is_set()
    goes_on.set()
    slow.close()
    quick.close()


class TestASharedBus(BusContract):
    @pytest.fixture
    def open_bus(self) -> BusOpener:
        store = MemoryStore()
        return lambda: choose_bus(store, SPACE)


# The log.


class TestLogBus(BusContract):
    @pytest.fixture
    def open_bus(self, tmp_path: Path) -> Iterator[BusOpener]:
        with ropewalk.open(str(tmp_path / "log.ropewalk")) as store:
            bus = LogBus(store, SPACE)
            yield lambda: bus


@pytest.fixture(params=["sqlite", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    place = tmp_path / "store.ropewalk"
    return str(place) if request.param == "sqlite" else f"file://{place}"


def test_what_another_store_object_commits_is_told(url: str) -> None:
    with ropewalk.open(url) as one, ropewalk.open(url) as two:
        writer = CoherenceCore(two, name=NAME)
        writer.write("alice", "plan", 1)
        bus, heard = choose_bus(one, SPACE), Heard()
        bus.subscribe(topic_of(place_of(one, SPACE), "plan"), heard)
        writer.write("alice", "plan", 2)
        writer.write("bob", "notes", 1)
        writer.write("bob", "plan", 3)

        assert heard.reaches(3)
        assert [(m.artifact, m.version, m.since, m.issuer) for m in heard.messages] == [
            ("plan", 2, 1, "alice"),
            ("plan", 3, 2, "bob"),
        ]
        bus.close()
        writer.close()


@pytest.mark.parametrize("artifact", ["a/b", "..", "x" * 600, "a\nb", "~", "ü"])
def test_an_artifact_of_any_name_is_told_of(tmp_path: Path, artifact: str) -> None:
    url = str(tmp_path / "store.ropewalk")
    with ropewalk.open(url) as one, ropewalk.open(url) as two:
        writer = CoherenceCore(two, name=NAME)
        bus, heard = choose_bus(one, SPACE), Heard()
        bus.subscribe(topic_of(place_of(one, SPACE), artifact), heard)
        writer.write("alice", artifact, 1)

        assert heard.reaches(1)
        assert [message.artifact for message in heard.messages] == [artifact]
        bus.close()
        writer.close()


def test_everything_in_the_space_is_told_on_its_topic(url: str) -> None:
    with ropewalk.open(url) as one, ropewalk.open(url) as two:
        writer = CoherenceCore(two, name=NAME)
        bus, heard = choose_bus(one, SPACE), Heard()
        bus.subscribe(space_topic(place_of(one, SPACE)), heard)
        writer.publish("alice", {"plan": 1, "notes": 1})
        writer.delete("alice", "plan")

        assert heard.inbox.counts(3)
        assert sorted((m.artifact, m.version) for m in heard.messages) == [
            ("notes", 1),
            ("plan", 1),
            ("plan", 2),
        ]
        bus.close()
        writer.close()


def test_what_listeners_here_know_is_not_told_from_the_log(url: str) -> None:
    with ropewalk.open(url) as one, ropewalk.open(url) as two:
        writer = CoherenceCore(two, name=NAME)
        writer.write("alice", "plan", 1)
        bus, heard = LogBus(one, SPACE), Heard()
        bus.subscribe(topic_of(place_of(one, SPACE), "plan"), heard)
        bus.note_published(one.view(SPACE).sequence + 1)
        writer.write("alice", "plan", 2)
        writer.write("alice", "plan", 3)

        assert heard.reaches(3)
        assert [message.version for message in heard.messages] == [3]
        bus.close()
        writer.close()


def test_a_bus_of_a_closed_store_ends(url: str) -> None:
    store = ropewalk.open(url)
    bus = choose_bus(store, SPACE)
    bus.subscribe(TOPIC, Inbox())
    store.close()
    bus.publish(TOPIC, b"news")
    bus.close()


def test_what_follows_a_log_notices_that_the_engine_went_back_in_time() -> None:
    # As of a server that may lose its last moments, and did: numbers come a second time.
    old, new = MemoryStore(), MemoryStore()

    def write(store: MemoryStore, *values: int) -> None:
        with CoherenceCore(store.another(), name=NAME, bus=False) as core:
            for value in values:
                core.write("writer", "plan", value)

    write(old, 1, 2, 3)
    write(new, 1, 7, 8)
    bus, heard, doubted = LogBus(old, SPACE), Heard(), threading.Event()
    try:
        bus.on_gap(doubted.set)
        bus.subscribe(topic_of(place_of(old, SPACE), "plan"), heard)
        write(old, 4)
        assert heard.reaches(4)
        write(new, 9)
        old._data = new._data

        assert doubted.wait(PATIENCE)
        write(new, 10)
        assert heard.reaches(5)
    finally:
        bus.close()
