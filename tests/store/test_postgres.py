"""A store in Postgres keeps every promise of the contract, packed or not."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from ropewalk.store import PostgresStore, Store
from ropewalk.testing import StoreContract
from ropewalk.testing.helpers import Opener
from tests.postgres import Postgres
from tests.store.postgres_contract import EagerStore, PostgresDamage

_numbers = itertools.count(1)


class TestPostgresStore(PostgresDamage, StoreContract):
    engine: type[PostgresStore] = PostgresStore

    @pytest.fixture
    def open_store(self, postgres: Postgres) -> Opener:
        schema = f"contract_{next(_numbers)}"

        def open_one(clock: Callable[[], float]) -> Store:
            return self.engine(postgres.url(), schema=schema, clock=clock)

        return open_one


class TestPackedPostgresStore(TestPostgresStore):
    """With every record in a segment at once, as those of an old store are."""

    engine = EagerStore
