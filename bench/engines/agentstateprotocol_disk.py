"""AgentStateProtocol with its SQLite storage."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bench._model import EngineInfo, Place
from bench.engines.agentstateprotocol import AgentStateProtocol


class AgentStateProtocolDisk(AgentStateProtocol):
    """It never reads its storage itself, so we ask for the newest checkpoint of the branch."""

    def __init__(self, place: Place) -> None:
        storage = import_module("agentstateprotocol").SQLiteStorage
        self._storage = storage(str(place.folder / "agent.db"))
        super().__init__(self._storage)
        self._branch = place.branch
        self._agent.branch(place.branch)

    def commit(self, value: Any) -> None:
        self._agent.checkpoint({"value": value})

    def read(self) -> Any:
        newest = self._storage.list_checkpoints(self._branch, limit=1)[0]
        return self._storage.load_checkpoint(newest["id"]).state["value"]


ENGINE = EngineInfo(
    name="agentstateprotocol-disk",
    label="AgentStateProtocol, SQLite",
    open=AgentStateProtocolDisk,
    environment="peers",
    package="agentstateprotocol",
    imports="agentstateprotocol",
    note="a connection for each commit with SQLite's defaults: a rollback journal and "
    "synchronous=FULL, which is durable; there is no relaxed setting",
)
