"""Many processes on one store in Postgres; clients and servers that are killed."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

import ropewalk
from ropewalk.store import PostgresStore
from ropewalk.testing.helpers import MAIN, SPACE, read
from tests.conftest import SOAK
from tests.patience import wait_until
from tests.postgres import Postgres, running_postgres
from tests.store.postgres_workers import start, start_all
from tests.store.test_processes import acknowledged, begin, kill_after, lines_of, rest_of

PROCESSES = 8
TOTAL = 1000 if SOAK else 80
CLIENT_KILLS = 50 if SOAK else 3
SERVER_KILLS = 10 if SOAK else 2
COLLECTIONS = 25 if SOAK else 1


@pytest.fixture(scope="module")
def own_server() -> Iterator[Postgres]:
    """A server that these tests may kill."""
    with running_postgres() as server:
        yield server


def test_eight_processes_on_one_branch_lose_nothing(postgres_url: str) -> None:
    each = 30 if SOAK else 4
    with PostgresStore(postgres_url) as store:
        state = ropewalk.Versioned(store, name="shared", mergers={"log": "append"})
        state["log"] = []
        state.commit()
    calls = [("branch", postgres_url, "ropewalk", n, each) for n in range(PROCESSES)]
    workers = start_all(calls)

    for worker in workers:
        begin(worker)
    outputs = [worker.communicate()[0] for worker in workers]

    assert [worker.returncode for worker in workers] == [0] * PROCESSES
    assert [len(output.splitlines()) for output in outputs] == [each] * PROCESSES
    with PostgresStore(postgres_url) as store:
        log = ropewalk.Versioned(store, name="shared")["log"]
        assert sorted(log) == sorted(f"{n} {i}" for n in range(PROCESSES) for i in range(each))
        assert store.check(read_data=True).ok


def test_processes_and_threads_that_share_a_ref_leave_no_gap(postgres_url: str) -> None:
    PostgresStore(postgres_url).close()
    calls = [("share", postgres_url, "ropewalk", f"p{n}", 2, TOTAL) for n in range(4)]
    workers = start_all(calls)

    for worker in workers:
        begin(worker)
    told = [acknowledged(worker.communicate()[0]) for worker in workers]

    with PostgresStore(postgres_url) as store:
        check(store, {number: id for one in told for number, id in one.items()})
        assert sum(map(len, told)) == store.view(SPACE).sequence >= TOTAL


def test_a_killed_writer_takes_nothing_that_was_acknowledged(postgres_url: str) -> None:
    choose = random.Random(6)
    told: dict[int, bytes] = {}
    PostgresStore(postgres_url).close()
    for number in range(CLIENT_KILLS):
        worker = start("write", postgres_url, "ropewalk", f"round {number}")
        begin(worker)
        told |= kill_after(worker, choose.randrange(1, 30))

    with PostgresStore(postgres_url) as store:
        assert len(told) >= CLIENT_KILLS
        check(store, told)
        assert store.check(read_data=False).ok
        idle = (
            "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' "
            "AND datname = current_database()"
        )
        wait_until(lambda: store._ask(idle) == [(0,)])  # The server has noticed who was killed.


def test_a_killed_collection_beside_a_killed_writer_harms_nothing(postgres_url: str) -> None:
    choose, freed = random.Random(8), 0
    PostgresStore(postgres_url).close()
    for number in range(COLLECTIONS):
        workers = start_all(
            [
                ("write_chunks", postgres_url, "ropewalk", number),
                ("collect", postgres_url, "ropewalk"),
            ]
        )
        writer, collector = workers
        begin(writer)
        lines = "".join(lines_of(writer, 15))
        begin(collector)
        freed += sum(map(int, lines_of(collector, choose.randrange(1, 4))))
        choose.shuffle(workers)
        for worker in workers:
            worker.kill()
        told = acknowledged(lines + rest_of(writer))
        rest_of(collector)

        with PostgresStore(postgres_url) as store:
            assert store.check(read_data=True).problems == ()
            head = store.ref(SPACE, MAIN)
            assert head is not None and head.sequence >= max(told)
            assert head.target == told.get(head.sequence, head.target)
    assert freed > 0


def test_a_killed_server_takes_nothing_that_was_acknowledged(own_server: Postgres) -> None:
    url, choose = own_server.new_database(), random.Random(7)
    PostgresStore(url).close()
    worker = start("write", url, "ropewalk", "writer")
    begin(worker)
    lines: list[str] = []
    for _ in range(SERVER_KILLS):
        lines += lines_of(worker, choose.randrange(5, 60))
        own_server.kill()
        own_server.start()
    lines += lines_of(worker, 5)  # It goes on by itself.
    worker.kill()
    told = acknowledged("".join(lines) + rest_of(worker))

    with PostgresStore(url) as store:
        check(store, told)
        assert len(told) >= 5 * SERVER_KILLS


def test_threads_of_a_client_survive_restarts(own_server: Postgres) -> None:
    url = own_server.new_database()
    PostgresStore(url).close()
    worker = start("together", url, "ropewalk", 4)
    begin(worker)
    lines = lines_of(worker, 20)
    own_server.stop()
    own_server.start()
    lines += lines_of(worker, 20)
    worker.kill()
    told = acknowledged("".join(lines) + rest_of(worker))

    with PostgresStore(url) as store:
        log = {one.sequence: one.moves[0].target for one in store.operations(SPACE, limit=10**6)}
        assert {number: log[number] for number in told} == told


def check(store: PostgresStore, told: dict[int, bytes]) -> None:
    """The log has no gap, holds what was told, and each operation follows the one before."""
    operations = store.operations(SPACE, limit=10**6)
    assert [one.sequence for one in operations] == list(range(1, len(operations) + 1))
    targets = {one.sequence: one.moves[0].target for one in operations}
    assert {number: targets[number] for number in told} == told
    before = None
    for operation in operations:
        assert operation.moves[0].expected == before
        before = operation.moves[0].target
    head = store.ref(SPACE, MAIN)
    assert head is not None and head.target == before
    read(store, [target for target in targets.values() if target is not None])
