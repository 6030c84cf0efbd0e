"""Many processes on one Redis server, clients and servers that are killed, and faults."""

from __future__ import annotations

import itertools
import os
import random
import threading
from collections.abc import Callable, Iterator

import pytest

from ropewalk.history import History
from ropewalk.store import RedisStore, Store
from ropewalk.testing import fail_every_call
from ropewalk.testing.helpers import MAIN, SPACE
from tests.conftest import SOAK
from tests.history.test_faults import VALUES, Agent
from tests.store.redis.servers import KEEPS_ALL, Configured, configured
from tests.store.test_processes import (
    acknowledged,
    begin,
    check,
    check_log,
    kill_after,
    lines_of,
    rest_of,
    start,
)
from tests.testing.test_every_call import (
    COMMITS,
    check_collection,
    check_commits,
    check_lease,
    collect_all,
    commit_all,
    take_lease,
)

PROCESSES, THREADS, TOTAL = 8, 2, 300
CLIENT_ROUNDS = 50 if SOAK else 3
SERVER_ROUNDS = 10 if SOAK else 3
ENGINE = "RedisStore"


@pytest.fixture(scope="module")
def running() -> Iterator[Configured]:
    """A server on which every commit is synced."""
    with configured(KEEPS_ALL) as server:
        yield server


@pytest.fixture
def server(running: Configured) -> Configured:
    """The same, empty."""
    running.clear()
    return running


def test_8_processes_on_one_ref_lose_nothing(server: Configured) -> None:
    names = [f"process {number}" for number in range(PROCESSES)]
    workers = [start(ENGINE, "share", server.url, name, THREADS, TOTAL) for name in names]

    for worker in workers:
        begin(worker)
    told = [acknowledged(worker.communicate()[0]) for worker in workers]

    assert [worker.returncode for worker in workers] == [0] * PROCESSES
    with RedisStore(server.url) as store:
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
        store.reader(SPACE)([operation.moves[0].target or b"" for operation in operations])
    assert all(told)


def test_threads_of_several_handles_share_a_branch(server: Configured) -> None:
    with RedisStore(server.url) as first, RedisStore(server.url) as second:
        History(first, SPACE).open().commit({"count": 0})

        def work(store: Store) -> None:
            handle = History(store, SPACE).open()
            for _ in range(15):
                value = handle.read()
                value["count"] += 1
                handle.commit(value, mergers={"count": "add"})

        threads = [threading.Thread(target=work, args=(store,)) for store in (first, second) * 2]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert History(first, SPACE).value() == {"count": 60}


def test_a_killed_writer_takes_nothing_that_was_acknowledged(server: Configured) -> None:
    choose, told = random.Random(6), dict[int, bytes]()
    for round_number in range(CLIENT_ROUNDS):
        worker = start(ENGINE, "write", server.url, round_number)
        begin(worker)
        told |= kill_after(worker, choose.randrange(1, 60))

        with RedisStore(server.url) as store:
            check(store, told)
    assert len(told) >= CLIENT_ROUNDS


def test_a_killed_collection_beside_a_killed_writer_harms_nothing(server: Configured) -> None:
    choose, freed = random.Random(66), 0
    for round_number in range(CLIENT_ROUNDS):
        writer = start(ENGINE, "write", server.url, round_number)
        collector = start(ENGINE, "collect", server.url)
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

        with RedisStore(server.url) as store:
            assert store.check(read_data=True).problems == ()
            head = store.ref(SPACE, MAIN)
            assert head is not None and head.sequence >= max(told)
            assert head.target == told.get(head.sequence, head.target)
    assert freed > 0


def test_a_killed_server_takes_nothing_that_was_acknowledged() -> None:
    choose = random.Random(666)
    with configured(KEEPS_ALL) as server:
        # Writers go on as soon as the server is there again, and are told no lies meanwhile.
        workers = [start(ENGINE, "write", server.url, 0), start(ENGINE, "together", server.url, 3)]
        for worker in workers:
            begin(worker)
        lines = ["", ""]
        for _ in range(SERVER_ROUNDS):
            for number, worker in enumerate(workers):
                lines[number] += "".join(lines_of(worker, choose.randrange(5, 60)))
            server.kill()
            server.start()
        for number, worker in enumerate(workers):
            lines[number] += "".join(lines_of(worker, 5))
            worker.kill()
            lines[number] += rest_of(worker)

        told = acknowledged("".join(lines))
        with RedisStore(server.url) as store:
            check_log(store, told)
            assert store.check().problems == ()
        assert len(told) > 10 * SERVER_ROUNDS


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_children_that_end_leave_their_parent_alone(server: Configured) -> None:
    worker = start(ENGINE, "fork", server.url, 10)
    begin(worker)
    told = acknowledged(worker.communicate()[0])

    assert worker.returncode == 0
    with RedisStore(server.url) as store:
        assert len(told) == len(store.operations(SPACE, limit=10**6)) >= 3
        check_log(store, told)


# Faults at every call of the engine.


@pytest.fixture
def fresh(redis_url: str) -> Callable[[], Callable[[], Store]]:
    names = itertools.count()

    def fresh() -> Callable[[], Store]:
        name = f"store-{next(names)}"
        return lambda: RedisStore(redis_url, name=name, durability="relaxed")

    return fresh


def test_a_caller_is_told_the_truth_about_commits(
    fresh: Callable[[], Callable[[], Store]],
) -> None:
    assert fail_every_call(fresh, commit_all, check_commits) >= 4 * (2 * len(COMMITS) - 1)


def test_a_collection_that_fails_leaves_a_sound_store(
    fresh: Callable[[], Callable[[], Store]],
) -> None:
    assert fail_every_call(fresh, collect_all, check_collection) > 4 * len(COMMITS)


def test_a_lease_outlives_every_fault(fresh: Callable[[], Callable[[], Store]]) -> None:
    assert fail_every_call(fresh, take_lease, check_lease) == 4 * 7


def test_a_history_tells_the_truth_whatever_call_fails(
    fresh: Callable[[], Callable[[], Store]],
) -> None:
    agent = Agent()

    assert fail_every_call(fresh, agent, agent.check) > 4 * len(VALUES)
