"""LangGraph with Ropewalk's adapter: large fields are content in a store on disk."""

from __future__ import annotations

from bench._model import Engine, EngineInfo, Place


def _open(place: Place) -> Engine:
    from bench._adapted import RopewalkGraph

    return RopewalkGraph(place)


ENGINE = EngineInfo(
    name="graph-ropewalk",
    label="LangGraph with Ropewalk",
    open=_open,
    environment="peers",
    package="ropewalk",
    imports="ropewalk.adapters.langgraph",
    note="LangGraphAdapter on the embedded store, beside LangGraph's InMemorySaver",
)
