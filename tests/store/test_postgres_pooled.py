"""A store in Postgres behind PgBouncer in transaction mode keeps its promises."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from ropewalk.store import PostgresStore, Store
from ropewalk.testing._stores._care import CareContract
from ropewalk.testing._stores._commits import CommitContract, ConcurrencyContract
from ropewalk.testing._stores._handles import AsynchronousContract, WatchContract
from ropewalk.testing._stores._leases import LeaseContract
from ropewalk.testing._stores._objects import ObjectContract
from ropewalk.testing.helpers import SPACE, Opener, point, value
from tests.postgres import Postgres
from tests.store.postgres_contract import PostgresDamage

_numbers = itertools.count(1)


class TestBehindPgBouncer(
    PostgresDamage,
    ObjectContract,
    CommitContract,
    LeaseContract,
    CareContract,
    WatchContract,
    ConcurrencyContract,
    AsynchronousContract,
):
    @pytest.fixture
    def open_store(self, postgres: Postgres, pgbouncer: int) -> Opener:
        schema = f"pooled_{next(_numbers)}"

        def open_one(clock: Callable[[], float]) -> Store:
            return PostgresStore(postgres.url(port=pgbouncer), schema=schema, clock=clock)

        return open_one


def test_nothing_is_left_in_the_sessions_that_others_get(
    postgres: Postgres, pgbouncer: int
) -> None:
    url = postgres.url(port=pgbouncer)
    with PostgresStore(url, schema="left", durability="relaxed", max_connections=4) as store:
        watching = store.watch(SPACE, timeout=0.2)
        point(store, value("x"))
        assert len(list(watching)) == 1
        store.acquire(SPACE, "lease/x", "me", 5)
        for name in ("synchronous_commit", "lock_timeout", "enable_seqscan", "jit"):
            changed = store._ask(
                "SELECT setting, reset_val FROM pg_settings WHERE name = %b::text", name
            )
            assert changed[0][0] == changed[0][1]

        assert store._ask("SELECT count(*) FROM pg_prepared_statements") == [(0,)]
        assert store._ask("SELECT count(*) FROM pg_listening_channels()") == [(0,)]
        assert store._ask(
            "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%%' "
            "AND datname = current_database()"
        ) == [(0,)]
