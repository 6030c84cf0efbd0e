"""LangGraph's SqliteSaver, in graphs."""

from __future__ import annotations

from bench._model import EngineInfo
from bench.engines._saver_sqlite import Sqlite

ENGINE = EngineInfo(
    name="saver-sqlite",
    label="SqliteSaver",
    open=Sqlite,
    environment="peers",
    package="langgraph-checkpoint-sqlite",
    imports="langgraph.checkpoint.sqlite",
    note="it sets WAL and leaves synchronous as SQLite was built; here it is set to FULL, as "
    "Ropewalk has it, so that an acknowledged checkpoint survives a power loss",
)
