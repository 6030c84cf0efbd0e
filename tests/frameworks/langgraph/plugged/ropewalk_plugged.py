"""A pytest plugin that gives LangGraph's own tests a RopewalkSaver for each of their checkpointers.

It is loaded by tests/frameworks/langgraph/upstream.py, and stands in a folder of its own because
LangGraph's tests are a package with the name of ours. Their files are not changed: the names
that their fixtures call are, before anybody has called them.

| their name | what it gives here |
| --- | --- |
| `memory` | their checkpointer that asserts immutability, on ours in memory |
| `sqlite`, `sqlite_aio` | ours on SQLite |
| `sqlite_aes` | ours on plain files |
| `InMemorySaver()` in a test | ours in memory |
"""

from __future__ import annotations

import copy
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from tempfile import TemporaryDirectory
from typing import Any

import langgraph.checkpoint.memory as memory

import ropewalk.store
from ropewalk.adapters.langgraph import RopewalkSaver

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Thousands of stores are made, and none must survive."""


class _Copies:
    """What their checkpointer that asserts immutability remembers states with: exact copies.

    LangGraph's serializer makes lists of tuples, and ours does not.
    """

    def dumps_typed(self, value: Any) -> tuple[str, Any]:
        return "copy", copy.deepcopy(value)

    def loads_typed(self, data: tuple[str, Any]) -> Any:
        return data[1]


class PluggedSaver(RopewalkSaver):
    """Takes what InMemorySaver takes, so that subclasses of that can be made of it."""

    def __init__(self, *, serde: Any = None, factory: Any = None) -> None:
        super().__init__()
        self.serde = _Copies()
        self.stack = ExitStack()


@contextmanager
def _on(address: Callable[[str], str]) -> Iterator[RopewalkSaver]:
    with (
        TemporaryDirectory(prefix="ropewalk-plugged-", dir=MEMORY) as folder,
        ropewalk.store.open(address(folder), durability="relaxed") as store,
        RopewalkSaver(store) as saver,
    ):
        yield saver


def _sqlite() -> Any:
    return _on(lambda folder: f"{folder}/store")


def _files() -> Any:
    return _on(lambda folder: f"file://{folder}/store")


@asynccontextmanager
async def _sqlite_aio() -> AsyncIterator[RopewalkSaver]:
    with _sqlite() as saver:
        yield saver


memory.InMemorySaver = memory.MemorySaver = PluggedSaver  # type: ignore[misc,unused-ignore]

_GIVEN = {
    "_checkpointer_sqlite": _sqlite,
    "_checkpointer_sqlite_aes": _files,
    "_checkpointer_sqlite_aio": _sqlite_aio,
}


def pytest_plugin_registered(plugin: Any) -> None:
    """Change what their fixtures call as soon as their conftest is there."""
    if getattr(plugin, "__name__", "") in ("tests.conftest", "conftest"):
        for name, given in _GIVEN.items():
            if not hasattr(plugin, name):
                raise RuntimeError(f"LangGraph's tests have no {name} any more: adapt the plugin")
            setattr(plugin, name, given)
