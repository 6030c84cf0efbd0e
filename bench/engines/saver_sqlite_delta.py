"""LangGraph's SqliteSaver, in graphs whose growing channel is a DeltaChannel."""

from __future__ import annotations

from bench._model import EngineInfo
from bench.engines._saver_sqlite import SqliteDelta

ENGINE = EngineInfo(
    name="saver-sqlite-delta",
    label="SqliteSaver with DeltaChannel",
    open=SqliteDelta,
    environment="peers",
    package="langgraph-checkpoint-sqlite",
    imports="langgraph.checkpoint.sqlite",
    note="another state: its growing channel is a DeltaChannel, a beta, with its own reducer for "
    "messages and a snapshot at every 100th update",
)
