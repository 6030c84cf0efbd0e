"""A checkpointer on every engine, each on a place that is empty."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, TypeAlias

import ropewalk.store
from ropewalk.adapters.langgraph import RopewalkSaver
from ropewalk.store import CachedStore, Store
from tests.postgres import running_postgres
from tests.s3_server import own_server, url_of
from tests.servers import Redis, running

ENGINES = ("memory", "sqlite", "files", "postgres", "redis", "s3", "cached")
"""Every engine, and one behind a cache."""
QUICK = ("memory", "sqlite")
"""Those that need no server and few files: most tests run on them."""

NewAddress: TypeAlias = Callable[[], str]
"""Gives the URL of one more empty place."""

_numbers = itertools.count(1)


def open_store(engine: str, address: str) -> Store:
    """The store there, as one more process would open it."""
    # Of the others, those that can be asked for less need no disk here.
    durability: Literal["relaxed"] | None = (
        None if engine in ("memory", "postgres", "s3") else "relaxed"
    )
    store = ropewalk.store.open(address, durability=durability)
    return CachedStore(store) if engine == "cached" else store


@contextmanager
def saver_at(engine: str, address: str, **options: Any) -> Iterator[RopewalkSaver]:
    """A checkpointer on the store there; both are closed at the end."""
    with open_store(engine, address) as store, RopewalkSaver(store, **options) as saver:
        yield saver


def local_address(engine: str, folder: Path) -> str:
    """The URL of one more empty place for an engine that needs no server."""
    place = folder / f"store-{next(_numbers)}"
    return {"memory": "memory://", "files": f"file://{place}"}.get(engine, str(place))


@contextmanager
def places(engine: str) -> Iterator[NewAddress]:
    """Where stores can be made, outside of a test; a server is started if it takes one."""
    with ExitStack() as stack:
        if engine == "postgres":
            yield stack.enter_context(running_postgres()).new_database
        elif engine == "redis":
            server = stack.enter_context(running(Redis))
            yield lambda: _cleared(server)
        elif engine == "s3":
            endpoint = stack.enter_context(own_server()).endpoint
            yield lambda: url_of(endpoint, f"place-{next(_numbers)}")
        else:
            folder = stack.enter_context(TemporaryDirectory(prefix="ropewalk-langgraph-"))
            yield lambda: local_address(engine, Path(folder))


def _cleared(server: Redis) -> str:
    server.clear()
    return server.url
