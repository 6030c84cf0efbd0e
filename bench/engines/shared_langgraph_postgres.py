"""LangGraph's PostgresStore."""

from __future__ import annotations

from bench._model import EngineInfo
from bench.engines._shared import OfPostgres

ENGINE = EngineInfo(
    name="shared-langgraph-postgres",
    label="PostgresStore",
    open=OfPostgres,
    environment="peers",
    package="langgraph-checkpoint-postgres",
    imports="langgraph.store.postgres",
    note="keeps no versions, and the last writer wins",
    server="postgres",
)
