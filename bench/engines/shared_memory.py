"""LangGraph's InMemoryStore."""

from __future__ import annotations

from bench._model import EngineInfo
from bench.engines._shared import InMemory

ENGINE = EngineInfo(
    name="shared-memory",
    label="InMemoryStore",
    open=InMemory,
    environment="peers",
    package="langgraph-checkpoint",
    imports="langgraph.store.memory",
    note="promises nothing: it hands out the object that it was given, to everybody the same",
)
