"""A store in Postgres keeps every promise of the contract."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from ropewalk.store import PostgresStore, Store
from ropewalk.testing import ObjectStoreContract
from ropewalk.testing._stores._base import Opener
from ropewalk.tree import ObjectId
from tests.postgres import Postgres

_numbers = itertools.count(1)


def damage(store: Store, id: ObjectId) -> bool:
    """Change the last byte of what is stored for an object."""
    assert isinstance(store, PostgresStore)
    store._ask(
        "UPDATE {s}.objects SET frame = "
        "set_byte(frame, octet_length(frame) - 1, get_byte(frame, octet_length(frame) - 1) # 1)"
        " WHERE uuid_send(key) || rest = %b::bytea",
        id,
    )
    return True


class TestPostgresStore(ObjectStoreContract):
    @pytest.fixture
    def open_store(self, postgres: Postgres) -> Opener:
        schema = f"contract_{next(_numbers)}"

        def open_one(clock: Callable[[], float]) -> Store:
            return PostgresStore(postgres.url(), schema=schema, clock=clock)

        return open_one

    def damage(self, store: Store, id: ObjectId) -> bool:
        return damage(store, id)
