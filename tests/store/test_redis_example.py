"""The contracts, on the Redis example of the documentation and a real server."""

from __future__ import annotations

import random

import pytest

from ropewalk import Timeline, Unavailable
from ropewalk.store import KeyValueStore
from ropewalk.testing import KVStoreContract
from ropewalk.testing.helpers import MAIN, SPACE, Opener
from ropewalk.testing.key_values import KVOpener
from tests.conftest import SOAK
from tests.store.records.contract import CellContract
from tests.store.redis_example import redis_store, source
from tests.store.test_processes import (
    acknowledged,
    begin,
    check,
    kill_after,
    lines_of,
    rest_of,
    start,
)

LINES = 45
ROUNDS = 30 if SOAK else 4
PROCESSES, THREADS, TOTAL = 4, 2, 300


class TestRedisStore(KVStoreContract):
    @pytest.fixture
    def open_kv(self, redis_url: str) -> KVOpener:
        return lambda: redis_store(redis_url)


class TestStoreOnRedis(CellContract):
    @pytest.fixture
    def open_store(self, redis_url: str) -> Opener:
        return lambda clock: KeyValueStore(redis_store(redis_url), clock=clock)


def test_the_example_is_short() -> None:
    written = source().partition("class RedisStore")[2].splitlines()

    assert len(written) <= LINES


def test_several_processes_share_an_agent_on_redis(
    redis_url: str,
) -> None:
    with redis_store(redis_url).as_store() as store:
        Timeline("agent", store=store).checkpoint({"step": 1})

    with redis_store(redis_url).as_store() as again:
        assert Timeline("agent", store=again).get_state() == {"step": 1}
        assert again.check(read_data=True).ok


def test_a_server_that_does_not_answer_is_unavailable() -> None:
    kv = redis_store("redis://127.0.0.1:1/0")

    with pytest.raises(Unavailable, match=r"RedisStore\.get failed"):
        kv.as_store()


def test_processes_that_share_a_ref_on_redis_lose_nothing(redis_url: str) -> None:
    names = [f"process {number}" for number in range(PROCESSES)]
    workers = [start("redis", "share", redis_url, name, THREADS, TOTAL) for name in names]

    for worker in workers:
        begin(worker)
    told = [acknowledged(worker.communicate()[0]) for worker in workers]

    assert [worker.returncode for worker in workers] == [0] * PROCESSES
    with redis_store(redis_url).as_store() as store:
        operations = store.operations(SPACE, limit=10 * TOTAL)
        assert [one.sequence for one in operations] == list(range(1, len(operations) + 1))
        assert sum(map(len, told)) == len(operations) >= TOTAL
        before = None
        for operation in operations:
            (move,) = operation.moves
            assert move.expected == before
            by = names.index(str(operation.metadata["by"]))
            assert told[by][operation.sequence] == move.target
            before = move.target
    assert all(told)


def test_a_killed_writer_on_redis_takes_nothing_that_was_acknowledged(redis_url: str) -> None:
    choose, told = random.Random(2026), dict[int, bytes]()
    for round_number in range(ROUNDS):
        worker = start("redis", "write", redis_url, round_number)
        begin(worker)
        told |= kill_after(worker, choose.randrange(1, 60))

        with redis_store(redis_url).as_store() as store:
            check(store, told)
    assert len(told) >= ROUNDS


def test_a_killed_collection_beside_a_killed_writer_on_redis_harms_nothing(
    redis_url: str,
) -> None:
    choose, freed = random.Random(2027), 0
    for round_number in range(ROUNDS):
        writer = start("redis", "write", redis_url, round_number)
        collector = start("redis", "collect", redis_url)
        begin(writer)
        lines = "".join(lines_of(writer, 25))
        begin(collector)
        freed += sum(map(int, lines_of(collector, choose.randrange(1, 5))))
        workers = [writer, collector]
        choose.shuffle(workers)
        for worker in workers:
            worker.kill()
        told = acknowledged(lines + rest_of(writer))
        rest_of(collector)

        with redis_store(redis_url).as_store() as store:
            assert store.check(read_data=True).problems == ()
            head = store.ref(SPACE, MAIN)
            assert head is not None and head.sequence >= max(told)
            assert head.target == told.get(head.sequence, head.target)
    assert freed > 0
