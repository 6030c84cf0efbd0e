"""Postgres behind a bad network: bounded time, clear errors, recovery, nothing done twice."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg.abc import PQGen
from psycopg.waiting import Ready, Wait
from psycopg_pool import PoolTimeout

from ropewalk.errors import NotAllowed, Unavailable
from ropewalk.store import Move, PostgresStore, retry
from ropewalk.store.postgres.errors import TimedOut
from ropewalk.store.postgres.pool import _until
from ropewalk.testing import fail_every_call
from ropewalk.testing.helpers import MAIN, PATIENCE, SPACE, point, read, value
from tests.patience import patiently
from tests.postgres import Postgres
from tests.proxy import Proxy
from tests.testing.test_every_call import check_commits, commit_all

SHORT = 1.0
"""Seconds that a call may take where a test waits for it to fail."""


@pytest.fixture
def proxy(postgres: Postgres) -> Iterator[Proxy]:
    with Proxy("127.0.0.1", postgres.port) as made:
        yield made


@pytest.fixture
def url(postgres: Postgres, postgres_url: str, proxy: Proxy) -> str:
    """The address of an empty database, through the proxy."""
    return postgres.url(postgres_url.rpartition("/")[2], port=proxy.port)


@pytest.fixture
def store(url: str) -> Iterator[PostgresStore]:
    with PostgresStore(url) as opened:
        yield opened


@pytest.fixture
def hasty(url: str) -> Iterator[PostgresStore]:
    """A store that does not wait for long."""
    with patiently(lambda: PostgresStore(url, timeout=SHORT, connect_timeout=2.0)) as opened:
        yield opened


def put_one(url: str) -> None:
    """Commit something, by one that waits for as long as it takes."""
    with PostgresStore(url) as patient:
        point(patient, value("one"))


def idle_in_transaction(postgres: Postgres, database: str) -> object:
    """How many transactions are open in a database; those of other tests do not count."""
    ((count,),) = postgres.run(
        "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' "
        f"AND datname = '{database.rpartition('/')[2]}'"
    )
    return count


def test_a_commit_whose_reply_was_lost_is_recognised(store: PostgresStore, proxy: Proxy) -> None:
    first = value("first")
    point(store, first)
    second = value("second")
    proxy.drop_replies(after=MAIN.encode(), once=True)
    done = point(store, second, expected=first.id)

    assert proxy.lost.is_set()
    assert done.sequence == 2
    assert [one.moves[0].target for one in store.operations(SPACE)] == [first.id, second.id]


def test_a_commit_that_happened_unseen_is_recognised_when_it_is_sent_again(
    hasty: PostgresStore, url: str, proxy: Proxy
) -> None:
    one = value("one")
    patiently(lambda: hasty.ref(SPACE, MAIN))
    proxy.drop_replies(after=MAIN.encode())
    with pytest.raises(Unavailable, match="same write id"):
        hasty.commit(SPACE, [one], moves=[Move(MAIN, None, one.id)], write_id="w")
    proxy.keep_replies()

    with PostgresStore(url) as again:
        done = again.commit(SPACE, [one], moves=[Move(MAIN, None, one.id)], write_id="w")
        assert done.sequence == again.view(SPACE).sequence == 1


def test_connections_that_were_cut_are_replaced_unseen(store: PostgresStore, proxy: Proxy) -> None:
    point(store, value("one"))
    proxy.cut()

    assert store.view(SPACE).sequence == 1
    proxy.cut()
    assert point(store, value("two"), expected=value("one").id).sequence == 2


def test_a_server_that_hangs_is_unavailable_in_bounded_time(
    hasty: PostgresStore, url: str, proxy: Proxy
) -> None:
    put_one(url)
    assert patiently(lambda: hasty.view(SPACE)).sequence == 1
    proxy.stall()
    with pytest.raises(Unavailable, match=r"did not answer within 1 seconds.*timeout"):
        hasty.view(SPACE)
    with pytest.raises(Unavailable):
        point(hasty, value("two"), expected=value("one").id)
    proxy.resume()

    assert patiently(lambda: hasty.view(SPACE)).sequence in (1, 2)


def test_a_server_that_is_gone_is_unavailable_and_found_again(
    hasty: PostgresStore, url: str, proxy: Proxy
) -> None:
    put_one(url)
    proxy.refuse()
    with pytest.raises(Unavailable, match=r"Check host and port|did not answer"):
        hasty.view(SPACE)
    proxy.accept()

    assert patiently(lambda: hasty.view(SPACE)).sequence == 1


def test_closing_a_store_whose_server_is_gone_does_not_wait_for_it(url: str, proxy: Proxy) -> None:
    store = PostgresStore(url, timeout=10 * PATIENCE)
    point(store, value("one"))
    proxy.refuse()
    closing = threading.Thread(target=store.close)
    closing.start()
    closing.join(PATIENCE)

    assert not closing.is_alive()


def test_opening_a_store_on_a_server_that_hangs_ends(url: str, proxy: Proxy) -> None:
    proxy.stall()

    with pytest.raises(Unavailable):
        PostgresStore(url, connect_timeout=2.0)


def test_a_server_that_comes_back_is_found_by_a_call_that_waits(
    store: PostgresStore, proxy: Proxy
) -> None:
    point(store, value("one"))
    proxy.refuse()
    found: list[int] = []
    asking = threading.Thread(target=lambda: found.append(store.view(SPACE).sequence))
    asking.start()
    time.sleep(3 * SHORT)  # Longer than the pool goes on by itself.
    proxy.accept()
    asking.join(PATIENCE)

    assert found == [1]


def test_an_answer_that_trickles_in_is_not_read_for_ever() -> None:
    def answer() -> PQGen[None]:
        while True:
            yield Wait.R

    def asked(deadline: float) -> PQGen[None]:
        asking = _until(answer(), deadline)
        next(asking)
        return asking

    asked(time.monotonic() + 60.0).send(Ready.R)
    with pytest.raises(TimedOut):
        asked(time.monotonic() - 60.0).send(Ready.R)


def test_opening_a_store_whose_connection_is_cut_says_so(url: str, proxy: Proxy) -> None:
    said: list[str] = []
    for piece in itertools.count(1):
        proxy.fail_at(piece)
        try:
            with PostgresStore(url, timeout=SHORT):
                break
        except Unavailable as error:
            said.append(str(error))

    assert len(said) > 5 and all("the Postgres store at" in text for text in said)


def test_opening_a_store_that_is_being_made_ends(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as other:
        other.execute("SELECT pg_advisory_lock(hashtext('ropewalk \"ropewalk\"'))")

        with pytest.raises(Unavailable, match="did not answer within 1 seconds"):
            PostgresStore(postgres_url, timeout=SHORT)


def test_what_is_sent_once_is_not_lost_to_a_connection_that_had_ended(
    postgres: Postgres, postgres_url: str
) -> None:
    ours = f"FROM pg_stat_activity WHERE datname = '{postgres_url.rpartition('/')[2]}'"
    with PostgresStore(postgres_url) as store:
        point(store, value("x"))
        postgres.run(f"SELECT pg_terminate_backend(pid, 60000) {ours}")

        assert store.release(store.acquire(SPACE, "lease/x", "me", 5.0))


def test_a_failed_statement_leaves_the_pool_as_it_was(
    store: PostgresStore, postgres: Postgres, postgres_url: str
) -> None:
    import psycopg

    for _ in range(30):
        with pytest.raises(psycopg.errors.DivisionByZero):
            store._ask("SELECT 1 / 0")

    assert idle_in_transaction(postgres, postgres_url) == 0
    assert point(store, value("one")).sequence == 1
    assert "returns_bad" not in store._database.pool._opened().get_stats()


def test_a_refused_commit_leaves_no_transaction_and_no_gap(
    store: PostgresStore, postgres: Postgres, postgres_url: str
) -> None:
    from ropewalk.errors import MissingObjects, RefMoved

    one = value("one")
    with pytest.raises(RefMoved):
        store.commit(SPACE, [one], moves=[Move(MAIN, value("other").id, one.id)])
    with pytest.raises(MissingObjects):
        store.commit(SPACE, [one], needs=[value("other").id])

    assert idle_in_transaction(postgres, postgres_url) == 0
    assert store.missing([one.id], SPACE) == [one.id]
    assert point(store, one).sequence == 1


@pytest.mark.parametrize("heard", [True, False])
def test_whatever_piece_is_lost_the_work_is_done_once(proxy: Proxy, url: str, heard: bool) -> None:
    steps = [value(f"step {number}") for number in range(4)]
    for piece in range(1, 2 * len(steps) + 1):  # Each commit and each read is one.
        with PostgresStore(url, schema=f"lost_{piece}") as store:
            store.spaces()
            proxy.fail_at(piece, heard=heard)
            before = None
            for step in steps:
                point(store, step, expected=before)
                assert read(store, [step.id])[0].payload == step.payload
                before = step.id

            assert proxy.lost.wait(SHORT)
            assert [one.moves[0].target for one in store.operations(SPACE)] == [
                step.id for step in steps
            ]


def test_failing_at_every_call_leaves_a_beginning_of_the_work(postgres: Postgres) -> None:
    numbers = iter(range(10_000))

    def fresh() -> Callable[[], PostgresStore]:
        schema = f"every_{next(numbers)}"
        return lambda: PostgresStore(postgres.url(), schema=schema)

    assert fail_every_call(fresh, commit_all, check_commits) > 20


def test_a_lock_that_others_hold_ends_in_bounded_time(
    hasty: PostgresStore, postgres_url: str
) -> None:
    import psycopg

    put_one(postgres_url)
    with psycopg.connect(postgres_url) as other:
        other.execute('SELECT 1 FROM "ropewalk".spaces FOR UPDATE')
        with pytest.raises(Unavailable):
            point(hasty, value("two"), expected=value("one").id)

    assert patiently(lambda: hasty.view(SPACE)).sequence in (1, 2)


def test_who_finds_no_connection_is_told_which_setting(postgres_url: str) -> None:
    made = patiently(lambda: PostgresStore(postgres_url, timeout=SHORT, max_connections=1))
    with made as store:
        patiently(store.spaces)
        with (
            store._database.pool._lent(float("inf")),
            pytest.raises(Unavailable, match="max_connections"),
        ):
            store.spaces()

        assert patiently(store.spaces) == []


def test_a_password_that_was_changed_is_named(postgres: Postgres, postgres_url: str) -> None:
    database = postgres_url.rpartition("/")[2]
    postgres.run("CREATE ROLE changing LOGIN SUPERUSER PASSWORD 'before'")
    url = f"postgresql://changing:before@127.0.0.1:{postgres.port}/{database}"
    with patiently(lambda: PostgresStore(url, timeout=SHORT, connect_timeout=2.0)) as store:
        patiently(store.spaces)
        postgres.run("ALTER ROLE changing PASSWORD 'after'")
        postgres.run(
            "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity "
            "WHERE usename = 'changing'"
        )

        with pytest.raises(NotAllowed, match="Check the user and the password"):
            patiently(store.spaces)


def test_statements_that_a_pooler_took_away_are_not_prepared_again(postgres_url: str) -> None:
    with PostgresStore(postgres_url, max_connections=1) as store:
        point(store, value("one"))
        prepared = "SELECT count(*) FROM pg_prepared_statements"
        assert store._ask(prepared) != [(0,)]
        store._ask("DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$")  # Unseen by the driver.

        assert point(store, value("two"), expected=value("one").id).sequence == 2
        assert point(store, value("three"), expected=value("two").id).sequence == 3
        assert store._ask(prepared) == [(0,)]


def test_who_is_in_a_hurry_waits_for_a_connection_that_others_have(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PostgresStore(postgres_url, max_connections=1) as store:
        pool = store._database.pool
        lent, free = threading.Event(), threading.Event()
        why = pool._reason

        def keep(_: object) -> None:
            lent.set()
            free.wait(PATIENCE)

        def told(error: PoolTimeout) -> Exception:
            free.set()  # Now that the hurried one knows that the server is there.
            return why(error)

        monkeypatch.setattr(pool, "_reason", told)
        keeper = threading.Thread(target=lambda: pool.run(keep, repeatable=False))
        keeper.start()
        assert lent.wait(PATIENCE)
        with retry.limit_retries(0.01):
            found = pool.row("SELECT 1")
        keeper.join()

    assert found == (1,)
