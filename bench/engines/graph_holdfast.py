"""LangGraph with Holdfast's adapter: large fields are content in a store on disk."""

from __future__ import annotations

from bench._model import Engine, EngineInfo, Place


def _open(place: Place) -> Engine:
    from bench._adapted import HoldfastGraph

    return HoldfastGraph(place)


ENGINE = EngineInfo(
    name="graph-holdfast",
    label="LangGraph with Holdfast",
    open=_open,
    environment="peers",
    package="holdfast",
    imports="holdfast.adapters.langgraph",
    note="LangGraphAdapter on the embedded store, beside LangGraph's InMemorySaver",
)
