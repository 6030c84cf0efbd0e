"""The engines beside whose history something stands, each opened as other processes would."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ropewalk.store import CachedStore, PostgresStore, RedisStore, Store
from ropewalk.testing import FaultStore
from tests.engines import ENGINES, opening

_WRAPPERS: dict[str, Callable[[Store], Store]] = {"cached": CachedStore, "faulty": FaultStore}

NAMES = [*ENGINES, "postgres", "redis", *_WRAPPERS]

_numbers = itertools.count(1)


@contextmanager
def opened(name: str, request: pytest.FixtureRequest, folder: Path) -> Iterator[Store]:
    """A store of an engine, or one in front of an embedded one."""
    store: Store
    if name == "postgres":
        url, schema = request.getfixturevalue("postgres").url(), f"aside_{next(_numbers)}"
        with PostgresStore(url, schema=schema) as store:
            yield store
    elif name == "redis":
        with RedisStore(request.getfixturevalue("redis_url"), durability="relaxed") as store:
            yield store
    else:
        wrap = _WRAPPERS.get(name)
        with opening("sqlite" if wrap else name, folder) as open_one:
            store = open_one()
            yield wrap(store) if wrap else store
