"""AgentStateProtocol's checkpoints in its files."""

from __future__ import annotations

from typing import Any

from bench._model import Engine, EngineInfo, Place
from bench.engines._protocol_steps import ProtocolSteps


def _storage(package: Any, place: Place) -> Any:
    return package.FileSystemStorage(str(place.folder))


def _open(place: Place) -> Engine:
    return ProtocolSteps(place, _storage)


ENGINE = EngineInfo(
    name="protocol-steps-files",
    label="AgentStateProtocol, files",
    open=_open,
    environment="peers",
    package="agentstateprotocol",
    imports="agentstateprotocol",
    note="not durable: a JSON file for each checkpoint that is never synced; max_checkpoints is "
    "raised, which spares it a look at all steps",
)
