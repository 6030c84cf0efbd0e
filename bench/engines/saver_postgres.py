"""LangGraph's PostgresSaver, in graphs."""

from __future__ import annotations

from bench._model import EngineInfo
from bench.engines._saver_postgres import Postgres

ENGINE = EngineInfo(
    name="saver-postgres",
    label="PostgresSaver",
    open=Postgres,
    environment="peers",
    package="langgraph-checkpoint-postgres",
    imports="langgraph.checkpoint.postgres",
    note="fsync and synchronous_commit on; where threads run at once, a saver and a connection "
    "for each",
    server="postgres",
)
