"""Where the benchmarks touch Ropewalk's coherence, and its store for LangGraph."""

from __future__ import annotations

from typing import Any

import ropewalk
from bench._model import Place
from bench.engines.artifacts import Shared
from ropewalk.adapters.langgraph import CoherentStore
from ropewalk.store import RedisStore, Store

_CONNECTIONS = 256


class CoherentSide(Shared):
    """A store on an engine, or in the memory of this process."""

    def __init__(self, strategy: str, place: Place | None = None) -> None:
        self._engine = opened(place) if place is not None and place.url else None
        super().__init__(CoherentStore(strategy, store=self._engine))

    def add_one(self, agent: str, key: str) -> int:
        change = _AddOne()
        self.store.edit(self.namespace(agent), key, change)
        return change.tries

    async def await_add_one(self, agent: str, key: str) -> int:
        change = _AddOne()
        await self.store.aedit(self.namespace(agent), key, change)
        return change.tries

    def close(self) -> None:
        self.store.close()
        if self._engine is not None:
            self._engine.close()


class _AddOne:
    """Adds one to a counter, and knows how often it was asked to."""

    def __init__(self) -> None:
        self.tries = 0

    def __call__(self, value: dict[str, Any]) -> dict[str, Any]:
        self.tries += 1
        return {**value, "count": value["count"] + 1}


def opened(place: Place) -> Store:
    """The engine of a place."""
    if place.url.startswith("redis:"):
        # Hundreds of threads of one process ask at once, which is more than a store expects.
        return RedisStore(place.url, durability=place.durability, connections=_CONNECTIONS)
    return ropewalk.open(place.url, durability=place.durability)
