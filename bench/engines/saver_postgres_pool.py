"""LangGraph's PostgresSaver on a pool of connections, in graphs."""

from __future__ import annotations

from bench._model import EngineInfo
from bench.engines._saver_postgres import PostgresPool

ENGINE = EngineInfo(
    name="saver-postgres-pool",
    label="PostgresSaver on a pool",
    open=PostgresPool,
    environment="peers",
    package="langgraph-checkpoint-postgres",
    imports="langgraph.checkpoint.postgres",
    note="one saver for all threads on a pool of 20 connections, as its documentation says",
    server="postgres",
)
