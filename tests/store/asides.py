"""The engines beside whose history something stands, each opened as other processes would."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.store import CachedStore, Store
from holdfast.testing import FaultStore
from tests.engines import opening

NAMES = ["memory", "sqlite", "files", "cached", "faulty"]

_WRAPPERS: dict[str, Callable[[Store], Store]] = {"cached": CachedStore, "faulty": FaultStore}


@contextmanager
def opened(name: str, folder: Path) -> Iterator[Store]:
    """A store of an engine, or one in front of an embedded one."""
    wrap = _WRAPPERS.get(name)
    with opening("sqlite" if wrap else name, folder) as open_one:
        store = open_one()
        yield wrap(store) if wrap else store
