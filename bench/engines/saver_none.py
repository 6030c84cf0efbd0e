"""LangGraph without a checkpointer: what the graph itself takes."""

from __future__ import annotations

from bench._model import EngineInfo, Place
from bench.engines._saver import Saver


def _open(place: Place) -> Saver:
    return Saver()


ENGINE = EngineInfo(
    name="saver-none",
    label="no checkpointer",
    open=_open,
    environment="peers",
    package="langgraph",
    imports="langgraph.graph",
    note="the graph itself, which keeps nothing",
)
