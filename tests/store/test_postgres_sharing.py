"""One store in Postgres for many: watchers, tasks, threads, forks."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
from collections.abc import Callable, Iterator

import pytest

import ropewalk
from ropewalk.errors import StoreClosed
from ropewalk.store import Move, Operation, PostgresStore
from ropewalk.testing.helpers import PATIENCE, SPACE, growing, in_threads, point, read, value
from tests.patience import wait_until
from tests.postgres import Postgres
from tests.proxy import Proxy

_numbers = itertools.count(1)


class Patient(PostgresStore):
    """A store whose watchers look only when they are woken."""

    poll_seconds = None


@pytest.fixture
def schema() -> str:
    return f"sharing_{next(_numbers)}"


@pytest.fixture
def writer(postgres: Postgres, schema: str) -> Iterator[PostgresStore]:
    with PostgresStore(postgres.url(), schema=schema) as store:
        yield store


def heard_by(watcher: PostgresStore, act: Callable[[], object], count: int) -> list[Operation]:
    """What a watcher hears of while something is done, after it has begun to listen."""
    heard: list[Operation] = []

    def watch() -> None:
        for operation in watcher.watch(SPACE):
            heard.append(operation)
            if len(heard) == count:
                return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    act()
    thread.join(PATIENCE)
    assert not thread.is_alive(), f"only {len(heard)} of {count} operations were heard of"
    return heard


def listens(store: PostgresStore) -> bool:
    return bool(store._ask("SELECT 1 FROM {s}.watches WHERE space = %b::text", SPACE))


def commit_many(store: PostgresStore, count: int) -> None:
    before = None
    for number in range(count):
        one = value(f"{number}")
        point(store, one, expected=before)
        before = one.id


def test_a_watcher_elsewhere_is_woken_by_the_server_alone(
    postgres: Postgres, schema: str, writer: PostgresStore
) -> None:
    with Patient(postgres.url(), schema=schema) as watcher:

        def act() -> None:
            wait_until(lambda: listens(writer))
            commit_many(writer, 20)

        heard = heard_by(watcher, act, 20)

    assert [one.sequence for one in heard] == list(range(1, 21))


def test_a_watcher_behind_pgbouncer_is_woken_too(
    postgres: Postgres, pgbouncer: int, schema: str, writer: PostgresStore
) -> None:
    with Patient(postgres.url(port=pgbouncer), schema=schema) as watcher:
        heard = heard_by(watcher, lambda: commit_many(writer, 5), 5)

    assert [one.sequence for one in heard] == [1, 2, 3, 4, 5]


def test_a_watcher_behind_pgbouncer_may_listen_elsewhere(
    postgres: Postgres, pgbouncer: int, schema: str, writer: PostgresStore
) -> None:
    url = postgres.url(port=pgbouncer)
    with Patient(url, schema=schema, listen_dsn=postgres.url()) as watcher:

        def act() -> None:
            wait_until(lambda: listens(writer))
            commit_many(writer, 5)

        heard = heard_by(watcher, act, 5)

    assert len(heard) == 5


def test_a_watcher_whose_connection_is_cut_hears_of_everything(
    postgres: Postgres, schema: str, writer: PostgresStore
) -> None:
    with (
        Proxy("127.0.0.1", postgres.port) as proxy,
        Patient(postgres.url(port=proxy.port), schema=schema) as watcher,
    ):

        def act() -> None:
            wait_until(lambda: listens(writer))
            commit_many(writer, 3)
            proxy.cut()
            point(writer, value("after"), expected=value("2").id)

        heard = heard_by(watcher, act, 4)

    assert [one.sequence for one in heard] == [1, 2, 3, 4]


def test_a_space_that_nobody_watches_is_told_to_nobody(writer: PostgresStore) -> None:
    commit_many(writer, 3)

    assert not listens(writer)
    assert writer._database._notifier._thread is None


def test_two_hundred_tasks_wait_for_the_pool_only(postgres: Postgres, schema: str) -> None:
    async def work() -> tuple[list[Operation], int]:
        async with PostgresStore(postgres.url(), schema=schema, max_connections=5) as store:
            beats = 0
            done = asyncio.Event()

            async def beat() -> None:
                nonlocal beats
                while not done.is_set():
                    beats += 1
                    await asyncio.sleep(0.001)

            async def one(number: int) -> Operation:
                made = value(f"task {number}")
                space = f"test/{number}"
                operation = await store.acommit(
                    space, [made], moves=[Move("branch/main", None, made.id)]
                )
                (found,) = read(store, [made.id], space)
                assert found.payload == made.payload
                return operation

            beating = asyncio.create_task(beat())
            operations = await asyncio.gather(*(one(number) for number in range(200)))
            done.set()
            await beating
            assert store._database.pool._opened().get_stats()["pool_size"] <= 5
            return operations, beats

    operations, beats = asyncio.run(work())

    assert [one.sequence for one in operations] == [1] * 200
    assert beats > 1  # The loop went on while they waited.


def test_the_same_objects_come_from_many_at_once(postgres: Postgres, schema: str) -> None:
    rounds, writers = 15, 6
    versions = [growing(4, seed=number, size=600) for number in range(rounds)]
    stores = [PostgresStore(postgres.url(), schema=schema) for _ in range(writers)]

    def work(number: int) -> None:
        before = None
        for objects in versions:
            # Each begins elsewhere, so that frames are stored against each other in other ways.
            chosen = objects[number % 2 :]
            head = chosen[-1]
            stores[number].commit(
                f"test/{number}", chosen, moves=[Move("branch/main", before, head.id)]
            )
            before = head.id

    in_threads(writers, work)

    for store in stores:
        for number in range(writers):
            mine = [one for objects in versions for one in objects[number % 2 :]]
            found = read(store, [one.id for one in mine], f"test/{number}")
            assert [one.payload for one in found] == [one.payload for one in mine]
        store.close()


def test_a_child_process_has_connections_of_its_own(writer: PostgresStore) -> None:
    point(writer, value("parent"))
    child = os.fork()
    if child == 0:
        try:
            done = point(writer, value("child"), expected=value("parent").id)
            os._exit(0 if done.sequence == 2 else 1)
        except BaseException:  # noqa: BLE001 - the parent is told by the code
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    assert point(writer, value("again"), expected=value("child").id).sequence == 3


def test_closing_ends_threads_and_connections(postgres: Postgres, schema: str) -> None:
    before = set(threading.enumerate())
    store = PostgresStore(f"{postgres.url()}?application_name={schema}", schema=schema)
    point(store, value("x"))
    watching = store.watch(SPACE)
    next(watching)
    store.close()

    with pytest.raises(StoreClosed):
        store.view(SPACE)
    with pytest.raises(StoreClosed):
        next(watching)
    asked = f"SELECT count(*) FROM pg_stat_activity WHERE application_name = '{schema}'"
    wait_until(lambda: postgres.run(asked) == [(0,)])
    wait_until(lambda: set(threading.enumerate()) <= before)


def test_a_state_on_postgres_is_shared_by_two_handles(postgres: Postgres, schema: str) -> None:
    url = f"{postgres.url()}?schema={schema}"
    with ropewalk.open(url) as one, ropewalk.open(url) as two:
        first, second = ropewalk.Versioned(one), ropewalk.Versioned(two)
        first["notes"] = ["a"]
        first.commit()
        second.refresh()
        second["notes"].append("b")
        second.commit()
        first.refresh()

        assert first["notes"] == ["a", "b"]
