"""AgentStateProtocol as its page uses it: `checkpoint` with a storage."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from bench._model import Place
from bench.engines._steps import Steps

_ENOUGH = 1_000_000
"""Past `max_checkpoints` it looks at every step each time, and removes none; it need not."""


class ProtocolSteps(Steps):
    """It never reads its storage itself, so we ask that for the newest checkpoint."""

    def __init__(self, place: Place, open_storage: Callable[[Any, Place], Any]) -> None:
        super().__init__()
        package = import_module("agentstateprotocol")
        self._storage = open_storage(package, place)
        self._agent = package.AgentStateProtocol(
            "bench", storage_backend=self._storage, max_checkpoints=_ENOUGH
        )

    def save(self, state: Any, description: str, logic_step: str) -> None:
        self._agent.checkpoint(state, description=description, logic_step=logic_step)

    def read(self) -> Any:
        # Its files are listed by the time of the file system, which is too coarse.
        listed = self._storage.list_checkpoints(limit=50)
        newest = max(listed, key=lambda one: float(one["timestamp"]))
        return self._storage.load_checkpoint(newest["id"]).state
