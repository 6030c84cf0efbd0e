"""LangGraph's InMemorySaver, in graphs."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bench._model import EngineInfo, Place
from bench.engines._saver import Saver


class InMemory(Saver):
    """One saver; its bytes are those of the values, the checkpoints and the writes."""

    lasting = False

    def __init__(self, place: Place) -> None:
        super().__init__()
        self._saver: Any = import_module("langgraph.checkpoint.memory").InMemorySaver()

    def checkpointer(self) -> Any:
        return self._saver

    def stored_bytes(self) -> int:
        blobs = sum(len(data) for _, data in self._saver.blobs.values())
        rows = [
            row
            for spaces in self._saver.storage.values()
            for checkpoints in spaces.values()
            for row in checkpoints.values()
        ]
        writes = [one[2][1] for kept in self._saver.writes.values() for one in kept.values()]
        return blobs + sum(len(row[0][1]) + len(row[1][1]) for row in rows) + sum(map(len, writes))


ENGINE = EngineInfo(
    name="saver-memory",
    label="InMemorySaver",
    open=InMemory,
    environment="peers",
    package="langgraph-checkpoint",
    imports="langgraph.checkpoint.memory",
    note="stored are the bytes of its values, checkpoints and writes, without keys",
)
