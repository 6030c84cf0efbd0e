"""LangGraph's PostgresSaver as a graph drives it: what the node wrote, then the checkpoint."""

from __future__ import annotations

from typing import Any

from bench._model import EngineInfo
from bench.engines.langgraph_postgres import LangGraphPostgres


class LangGraphStep(LangGraphPostgres):
    """Two calls for each step: `put_writes` when the node is done, `put` for the state."""

    def _before_put(self, path: tuple[str | int, ...], new: Any) -> None:
        written = [new] if len(path) > 1 else new  # A reducer appends it.
        self._saver.put_writes(self._config, [(str(path[0]), written)], f"task-{self._step}")


ENGINE = EngineInfo(
    name="langgraph-postgres-step",
    label="LangGraph PostgresSaver, as in a graph",
    open=LangGraphStep,
    environment="peers",
    package="langgraph-checkpoint-postgres",
    imports="langgraph.checkpoint.postgres",
    note="`put_writes` and `put`, which a graph calls for each step of one node; the graph's own "
    "time is left out",
    server="postgres",
)
