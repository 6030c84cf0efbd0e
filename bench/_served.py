"""Where the benchmarks touch Ropewalk's engines for teams, by their URLs."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import ropewalk
from bench._model import Place
from bench.engines.servers import Client
from ropewalk.history import Branch, History
from ropewalk.store import Store, space_name


class RopewalkClient(Client):
    """A branch of a history. It is handed the whole value, and not told what changed.

    All clients of a process share one store, with its connections and its cache. Each has
    a space of its own, as each agent has.
    """

    def __init__(self, store: Store, name: str) -> None:
        super().__init__()
        self._store = store
        self._history = History(store, space_name("bench", name))

    @cached_property
    def _branch(self) -> Branch:
        """The handle of who writes, which goes on from the newest value."""
        branch = self._history.open("main")
        if branch.head is not None:
            branch.read()
        return branch

    def commit(self, value: Any) -> None:
        self._branch.commit(value)

    def read(self) -> Any:
        return self._history.value("main")

    def another(self, name: str) -> RopewalkClient:
        return RopewalkClient(self._store, name)

    def close(self) -> None:
        self._store.close()


def opened(place: Place) -> Client:
    """The first client of a process."""
    return RopewalkClient(ropewalk.open(place.url, durability=place.durability), place.branch)
