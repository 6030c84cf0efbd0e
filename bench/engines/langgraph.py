"""LangGraph's InMemorySaver, driven directly: the value is one channel, without a graph."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bench._model import Engine, EngineInfo

_CHANNEL = "value"


class LangGraph(Engine):
    """One thread; every commit puts one checkpoint in which the channel changed."""

    def __init__(self) -> None:
        super().__init__()
        self._base = import_module("langgraph.checkpoint.base")
        self._saver = import_module("langgraph.checkpoint.memory").InMemorySaver()
        self._config: Any = {"configurable": {"thread_id": "bench", "checkpoint_ns": ""}}
        self._version: Any = None
        self._step = 0

    def commit(self, value: Any) -> None:
        self._version = self._saver.get_next_version(self._version, None)
        checkpoint = self._base.empty_checkpoint()
        checkpoint["channel_values"] = {_CHANNEL: value}
        checkpoint["channel_versions"] = versions = {_CHANNEL: self._version}
        metadata = {"source": "loop", "step": self._step, "parents": {}}
        self._config = self._saver.put(self._config, checkpoint, metadata, versions)
        self._step += 1

    def read(self) -> Any:
        return self._saver.get_tuple(self._config).checkpoint["channel_values"][_CHANNEL]

    def stored_bytes(self) -> int:
        blobs = sum(len(data) for _, data in self._saver.blobs.values())
        rows = [
            row
            for spaces in self._saver.storage.values()
            for checkpoints in spaces.values()
            for row in checkpoints.values()
        ]
        return blobs + sum(len(row[0][1]) + len(row[1][1]) for row in rows)


ENGINE = EngineInfo(
    name="langgraph",
    label="LangGraph InMemorySaver",
    open=LangGraph,
    environment="peers",
    package="langgraph-checkpoint",
    imports="langgraph.checkpoint.memory",
    note="the saver is driven directly, without a graph, which would only add to its time",
)
