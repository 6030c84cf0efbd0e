"""LangGraph alone: large fields are in its state like all others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from bench._model import EngineInfo, Place
from bench.engines._graph import Build, GraphSide, saver


class PlainGraph(GraphSide):
    """One channel for each field."""

    def __init__(self, place: Place) -> None:
        super().__init__()

    def compiled(self, build: Build, large: Mapping[str, Any], small: Mapping[str, Any]) -> Any:
        make: Any = TypedDict
        schema = make("PlainState", {**large, **small}, total=False)
        return build(schema, lambda node: node).compile(checkpointer=saver())


ENGINE = EngineInfo(
    name="graph-plain",
    label="LangGraph alone",
    open=PlainGraph,
    environment="peers",
    package="langgraph",
    imports="langgraph.graph",
    note="with its InMemorySaver",
)
