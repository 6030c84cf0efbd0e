"""AgentStateProtocol's checkpoints in its SQLite storage."""

from __future__ import annotations

from typing import Any

from bench._model import Engine, EngineInfo, Place
from bench.engines._protocol_steps import ProtocolSteps


def _storage(package: Any, place: Place) -> Any:
    return package.SQLiteStorage(str(place.folder / "agent.db"))


def _open(place: Place) -> Engine:
    return ProtocolSteps(place, _storage)


ENGINE = EngineInfo(
    name="protocol-steps-sqlite",
    label="AgentStateProtocol, SQLite",
    open=_open,
    environment="peers",
    package="agentstateprotocol",
    imports="agentstateprotocol",
    note="durable: a connection for each checkpoint with SQLite's defaults, a rollback journal "
    "and synchronous=FULL; max_checkpoints is raised, which spares it a look at all steps",
)
