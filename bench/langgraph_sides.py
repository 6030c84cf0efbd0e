"""Our sides of what needs LangGraph, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ropewalk
from bench._model import Place
from bench.engines.artifacts import Shared
from bench.engines.graphs import Build, GraphSide, saver
from bench.engines.savers import Saver
from bench.ropewalk_sides import sqlite_store
from ropewalk import AgentState, Externalized, Inline
from ropewalk.adapters.langgraph import CoherentStore, LangGraphAdapter, RopewalkSaver
from ropewalk.store import RedisStore, Store


class RopewalkSide(Saver):
    """One saver for all threads, on the store of a URL, or in a folder."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self._saver: Any = RopewalkSaver(place.url or str(place.folder / "agent.ropewalk"))

    def checkpointer(self) -> Any:
        return self._saver

    def close(self) -> None:
        self._saver.close()


class RopewalkDelta(RopewalkSide):
    """The same for graphs with a DeltaChannel."""

    delta = True


class RopewalkGraph(GraphSide):
    """Each large field is externalized, all nodes are wrapped, and the adapter compiles."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self._store = sqlite_store(place)

    def compiled(self, build: Build, large: Mapping[str, Any], small: Mapping[str, Any]) -> Any:
        fields: dict[str, Any] = {name: Externalized[one] for name, one in large.items()}
        fields |= {name: Inline[one] for name, one in small.items()}
        state = type("GraphState", (AgentState,), {"__annotations__": fields})
        adapter = LangGraphAdapter(state, backend=self._store)
        builder = build(adapter.schema(), adapter.wrap_node)
        return adapter.compile(builder, checkpointer=saver())

    def close(self) -> None:
        self._store.close()


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
