"""Where the benchmarks touch Ropewalk's adapter for LangGraph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench._model import Place
from bench._ropewalk import sqlite_store
from bench.engines.graphs import Build, GraphSide, saver
from ropewalk import AgentState, Externalized, Inline
from ropewalk.adapters.langgraph import LangGraphAdapter


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
