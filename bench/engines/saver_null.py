"""A checkpointer that stores nothing: what LangGraph itself takes to have one."""

from __future__ import annotations

from typing import Any

from bench._model import EngineInfo, Place
from bench.engines._saver import Saver


class Null(Saver):
    """It says of every checkpoint that it was stored, and finds none."""

    lasting = False

    def checkpointer(self) -> Any:
        from langgraph.checkpoint.base import BaseCheckpointSaver

        class _Saver(BaseCheckpointSaver[str]):
            def get_tuple(self, config: Any) -> None:
                return None

            def put(self, config: Any, checkpoint: Any, metadata: Any, versions: Any) -> Any:
                told = {**config["configurable"], "checkpoint_id": checkpoint["id"]}
                return {"configurable": told}

            def put_writes(self, config: Any, writes: Any, task: str, path: str = "") -> None:
                pass

        return _Saver()


def _open(place: Place) -> Saver:
    return Null()


ENGINE = EngineInfo(
    name="saver-null",
    label="a saver that stores nothing",
    open=_open,
    environment="peers",
    package="langgraph",
    imports="langgraph.graph",
    note="LangGraph's own share of what a checkpointer adds",
)
