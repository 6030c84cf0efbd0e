"""A server that restarts, hangs, or drops connections: bounded time, clear errors, recovery."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from ropewalk.errors import (
    Corrupt,
    MissingObjects,
    StoreFull,
    Unavailable,
)
from ropewalk.store import Move, RedisStore, Store
from ropewalk.store.redis import server
from ropewalk.store.redis.errors import from_redis
from ropewalk.testing.helpers import MAIN, PATIENCE, SPACE, in_threads, noise
from ropewalk.tree import Kind, Object, make_object
from tests.patience import patiently
from tests.proxy import Proxy
from tests.servers import Redis
from tests.store.redis.servers import KEEPS_ALL, client, configured

LARGE_BYTES = 40_000
"""Objects of so many bytes are shared, and sent ahead."""


def chunk(content: bytes) -> Object:
    return make_object(Kind.CHUNK, content)


@pytest.fixture
def proxy(redis_server: Redis, redis_url: str) -> Iterator[Proxy]:
    """A network in front of an empty server."""
    with Proxy("127.0.0.1", redis_server.port) as proxy:
        yield proxy


@pytest.fixture
def store(proxy: Proxy) -> Iterator[RedisStore]:
    """A store behind it, which waits long."""
    with opened(proxy, timeout=PATIENCE) as store:
        yield store


def opened(proxy: Proxy, **options: Any) -> RedisStore:
    return RedisStore(f"redis://127.0.0.1:{proxy.port}/0", durability="relaxed", **options)


def hasty(proxy: Proxy) -> RedisStore:
    """A store that does not wait for long, once it is open."""
    return patiently(lambda: opened(proxy, timeout=0.3))


# Connections that end.


def test_a_connection_that_ended_is_made_again(store: RedisStore, proxy: Proxy) -> None:
    one = chunk(noise(LARGE_BYTES))
    store.commit(SPACE, [one])

    for call in (
        lambda: store.commit(SPACE),
        lambda: store.read([one.id]),
        lambda: store.view(SPACE),
        lambda: store.acquire(SPACE, MAIN, "me", 10.0),
        lambda: store.gc(recent=1),
    ):
        proxy.cut()
        call()


@pytest.mark.parametrize("size", [100, LARGE_BYTES])
def test_a_lost_reply_is_recognised(store: RedisStore, proxy: Proxy, size: int) -> None:
    first, second = chunk(noise(size, 1)), chunk(noise(size, 2))
    store.commit(SPACE, [first], moves=[Move(MAIN, None, first.id)])
    proxy.drop_replies(after=b"EVALSHA", once=True)

    done = store.commit(SPACE, [second], moves=[Move(MAIN, first.id, second.id)])

    assert proxy.lost.is_set()
    assert done.sequence == 2
    assert [one.write_id for one in store.operations(SPACE)][1:] == [done.write_id]
    assert store.check(read_data=True).ok


def test_threads_that_share_a_connection_that_ends_commit_once_each(
    store: RedisStore, proxy: Proxy
) -> None:
    threads, commits = 8, 25

    def work(number: int) -> None:
        for at in range(commits):
            store.commit(f"{SPACE}{number % 3}", operation={"by": f"{number} {at}"})
            if number == 0 and at % 5 == 4:
                proxy.cut()

    in_threads(threads, work)

    done = [
        str(one.metadata["by"])
        for number in range(3)
        for one in store.operations(f"{SPACE}{number}", limit=1000)
    ]
    assert sorted(done) == sorted(f"{number} {at}" for number in range(threads) for at in range(25))
    assert store.check(read_data=True).ok


def test_a_collection_is_not_repeated_behind_a_lost_reply(store: RedisStore, proxy: Proxy) -> None:
    store.commit(SPACE, [chunk(noise(LARGE_BYTES))])
    store.commit(SPACE)
    store.gc(recent=1, dry_run=True)
    proxy.drop_replies(after=b"condemn")

    with pytest.raises(Unavailable):
        store.gc(recent=1)

    proxy.keep_replies()
    assert len(list(store.scan())) == 1
    assert store.gc(recent=1).freed == 1


def test_a_lease_whose_reply_was_lost_is_not_taken_for_another(
    store: RedisStore, proxy: Proxy
) -> None:
    proxy.drop_replies(after=b"EVALSHA")
    with pytest.raises(Unavailable):
        store.acquire(SPACE, MAIN, "me", 10.0)
    proxy.keep_replies()

    lease = store.acquire(SPACE, MAIN, "me", 10.0)

    assert lease.token in (1, 2)
    assert store.commit(SPACE, fence=lease.fence).sequence == 1
    assert store.release(lease)


def test_a_server_that_refuses_connections_is_unavailable_after_a_while(proxy: Proxy) -> None:
    with hasty(proxy) as store:
        proxy.refuse()
        for call in (lambda: store.commit(SPACE), lambda: store.view(SPACE)):
            with pytest.raises(Unavailable, match="cannot be reached"):
                call()
        proxy.accept()

        assert patiently(lambda: store.commit(SPACE, write_id="w")).sequence == 1


def test_a_server_that_comes_back_in_time_is_waited_for(store: RedisStore, proxy: Proxy) -> None:
    proxy.refuse()
    coming_back = threading.Timer(0.3, proxy.accept)
    coming_back.start()

    assert store.commit(SPACE).sequence == 1
    coming_back.join()


# Answers that do not come.


def test_a_server_that_hangs_is_unavailable_after_the_timeout(proxy: Proxy) -> None:
    with hasty(proxy) as store:
        one = chunk(noise(LARGE_BYTES))
        patiently(lambda: store.commit(SPACE, [one]))
        proxy.stall()
        for call in (
            lambda: store.commit(SPACE, write_id="w"),
            lambda: store.read([one.id]),
            lambda: store.view(SPACE),
            lambda: store.acquire(SPACE, MAIN, "me", 10.0),
            lambda: store.gc(recent=1),
        ):
            with pytest.raises(Unavailable, match="did not answer in time"):
                call()
        proxy.resume()

        assert patiently(lambda: store.read([one.id])) == [one]
        done = patiently(lambda: store.commit(SPACE, write_id="w"))
        operations = patiently(lambda: store.operations(SPACE))
        assert [one.write_id for one in operations].count("w") == 1
        assert done.write_id == "w"


def test_a_server_that_hangs_is_not_opened_for_long(proxy: Proxy) -> None:
    proxy.stall()

    with pytest.raises(Unavailable, match="did not answer in time"):
        opened(proxy, timeout=0.3)


def test_a_slow_network_is_only_slow(proxy: Proxy) -> None:
    with opened(proxy) as store:
        proxy.delay = 0.02
        one = chunk(noise(LARGE_BYTES))
        store.commit(SPACE, [one], moves=[Move(MAIN, None, one.id)])

        assert store.read([one.id]) == [one]
        proxy.delay = 0.0


def test_a_process_that_hangs_is_a_server_that_hangs() -> None:
    with (
        configured({"appendonly": "no"}) as server,
        patiently(lambda: RedisStore(server.url, durability="relaxed", timeout=0.3)) as store,
    ):
        patiently(lambda: store.commit(SPACE, write_id="first"))
        server.pause()
        try:
            with pytest.raises(Unavailable):
                store.commit(SPACE)
        finally:
            server.go_on()

        assert patiently(lambda: store.commit(SPACE, write_id="last")).sequence in (2, 3)


# Restarts.


def test_a_restarted_server_goes_on_where_it_was() -> None:
    with (
        configured(KEEPS_ALL) as server,
        RedisStore(server.url, timeout=PATIENCE) as store,
    ):
        one = chunk(noise(LARGE_BYTES))
        store.commit(SPACE, [one], moves=[Move(MAIN, None, one.id)], write_id="w")
        lease = store.acquire(SPACE, MAIN, "me", 60.0)
        epoch = store.view(SPACE).epoch
        server.kill()
        starting = threading.Timer(0.2, server.start)
        starting.start()

        # Sent while there is no server, and done when it is there again.
        done = store.commit(SPACE, fence=lease.fence)

        starting.join()
        assert done.sequence == 2 and done.epoch > epoch
        assert store.read([one.id]) == [one]
        again = store.commit(SPACE, [one], moves=[Move(MAIN, None, one.id)], write_id="w")
        assert again.sequence == 1


def test_a_writer_trusts_nothing_that_a_server_may_have_lost() -> None:
    with (
        configured({"save": "3600 1000"}) as server,
        client(server.url) as admin,
        RedisStore(server.url, durability="relaxed") as store,
    ):
        store.commit(SPACE, write_id="kept")
        admin.save()
        needed = chunk(b"needed")
        store.commit(SPACE, [needed], write_id="lost")
        server.kill()
        server.start()

        with pytest.raises(MissingObjects):
            store.commit(SPACE, [chunk(b"new")], needs=[needed.id])

        assert [one.write_id for one in store.operations(SPACE)] == ["kept"]
        again = store.commit(SPACE, [chunk(b"new"), needed])
        assert again.sequence == 2
        assert store.check(read_data=True).ok


def test_a_server_that_lost_everything_is_not_written_to() -> None:
    with (
        configured({"appendonly": "no"}) as server,
        RedisStore(server.url, durability="relaxed") as store,
        client(server.url) as other,
    ):
        store.commit(SPACE)
        server.kill()
        server.start()

        for call in (lambda: store.commit(SPACE), lambda: store.view(SPACE)):
            with pytest.raises(Corrupt, match="is gone"):
                call()
        assert other.keys() == []


def test_a_watcher_outlives_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RedisStore, "poll_seconds", None)
    with configured(KEEPS_ALL) as server, RedisStore(server.url) as store:
        store.commit(SPACE)
        watcher = store.watch(SPACE, timeout=PATIENCE)
        assert next(watcher).sequence == 1
        server.kill()
        server.start()
        with RedisStore(server.url) as other:
            writing = threading.Timer(0.2, lambda: other.commit(SPACE))
            writing.start()

            assert next(watcher).sequence == 2
            writing.join()


def test_a_replica_is_no_place_to_write(redis_server: Redis) -> None:
    with configured({"appendonly": "no"}) as server, client(server.url) as admin:
        admin.execute_command("REPLICAOF", "127.0.0.1", redis_server.port)

        with pytest.raises(Unavailable, match="replica"):
            RedisStore(server.url, durability="relaxed")


def test_a_node_that_has_not_the_store_says_who_has() -> None:
    with configured({"cluster-enabled": "yes"}) as server:
        with pytest.raises(Unavailable, match="cluster"):
            RedisStore(server.url, durability="relaxed")
        with client(server.url) as admin:
            admin.execute_command("CLUSTER", "ADDSLOTS", *range(16384))
            until_up(admin)

        with RedisStore(server.url, durability="relaxed") as store:
            one = chunk(noise(LARGE_BYTES))
            store.commit(SPACE, [one], moves=[Move(MAIN, None, one.id)])
            assert store.read([one.id]) == [one]
            assert store.gc(recent=1).freed == 0


def until_up(admin: Any) -> None:
    until = time.monotonic() + PATIENCE
    while b"cluster_state:ok" not in admin.execute_command("CLUSTER", "INFO", NEVER_DECODE=True):
        assert time.monotonic() < until, "the cluster does not come up"
        time.sleep(0.01)


# Every command of the driver fails once, before it is sent or after it was answered.


class Failing:
    """Lets the n-th conversation with the server fail; `after` it was held, or before."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self.at, self.after = 0, 0, False
        self.error: Exception = redis.ConnectionError("the test says so")
        self._converse = server.converse
        monkeypatch.setattr(server, "converse", self.converse)

    def converse(self, connection: Any, commands: Any) -> list[Any]:
        if not connection.is_connected:
            connection.connect()  # Which is a conversation by itself.
        self.count += 1
        fails = self.count == self.at
        if fails and not self.after:
            raise self.error
        result = self._converse(connection, commands)
        if fails:
            raise self.error
        return result

    def arm(self, at: int, after: bool, error: Exception) -> None:
        self.count, self.at, self.after, self.error = 0, at, after, error


FIRST, SECOND, LARGE = chunk(noise(500)), chunk(noise(600)), chunk(noise(LARGE_BYTES))


def work(store: Store) -> None:
    store.commit(SPACE, [FIRST], moves=[Move(MAIN, None, FIRST.id)], write_id="1")
    store.commit(SPACE, [SECOND, LARGE], moves=[Move(MAIN, FIRST.id, SECOND.id)], write_id="2")
    store.reader(SPACE)([FIRST.id, SECOND.id, LARGE.id])
    store.view(SPACE)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("error", [redis.ConnectionError("x"), redis.TimeoutError("x")])
def test_whatever_command_fails_a_commit_happens_once(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, after: bool, error: Exception
) -> None:
    failing = Failing(monkeypatch)
    with RedisStore(redis_url, durability="relaxed", name="count") as store:
        failing.arm(0, False, error)
        work(store)
        calls = failing.count
    assert calls >= 6

    for at in range(1, calls + 1):
        with RedisStore(redis_url, durability="relaxed", name=f"n{at}") as store:
            failing.arm(at, after, error)
            failed = isinstance(error, redis.TimeoutError)
            try:
                work(store)
                failed = False
            except Unavailable:
                assert failed, "a connection that ended is made again"
            work(store)

            assert [one.write_id for one in store.operations(SPACE)] == ["1", "2"]
            assert store.check(read_data=True).ok
            assert len(list(store.scan())) == 3


# What errors mean.


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (redis.exceptions.BusyLoadingError("x"), Unavailable, "reading its data"),
        (redis.exceptions.ReadOnlyError("x"), Unavailable, "primary"),
        (redis.exceptions.MasterDownError("MASTERDOWN x"), Unavailable, "lost its primary"),
        (redis.exceptions.ClusterDownError("CLUSTERDOWN x"), Unavailable, "cluster"),
        (redis.exceptions.OutOfMemoryError("x"), StoreFull, "maxmemory"),
        (redis.ResponseError("MISCONF x"), Unavailable, "look at its log"),
        (redis.ResponseError("BUSY Redis is busy running a script"), Unavailable, "script"),
        (redis.ResponseError("NOREPLICAS Not enough good replicas"), Unavailable, "replicas"),
        # As Redis 6 says what a script met.
        (redis.ResponseError("Error running script: @user: 9: -OOM command"), StoreFull, "OOM|max"),
        (redis.ResponseError("Error running script: -READONLY You"), Unavailable, "primary"),
        (redis.ResponseError("ERR something new"), Unavailable, "something new"),
        (redis.exceptions.MovedError("1234 10.0.0.1:7000"), Unavailable, "10.0.0.1:7000"),
    ],
)
def test_an_error_of_the_server_is_said_in_words(error: Exception, kind: type, said: str) -> None:
    meant = from_redis("redis://x:1/0", error)

    assert type(meant) is kind
    assert "redis://x:1/0" in str(meant)
    assert any(word in str(meant) for word in said.split("|"))
