"""AgentStateProtocol with its default, which keeps every checkpoint in memory."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

from bench._model import Engine, EngineInfo


class AgentStateProtocol(Engine):
    """The value is one entry of its state, which must be a dict."""

    def __init__(self, storage: Any = None) -> None:
        super().__init__()
        package = import_module("agentstateprotocol")
        self._agent = package.AgentStateProtocol("bench", storage_backend=storage)
        self._uncounted: list[Any] = []
        self._bytes = 0

    def commit(self, value: Any) -> None:
        self._uncounted.append(self._agent.checkpoint({"value": value}))

    def read(self) -> Any:
        return self._agent.get_state()["value"]

    def stored_bytes(self) -> int:
        # It holds copies as Python objects; its storage writes each of them as JSON.
        for checkpoint in self._uncounted:
            self._bytes += len(json.dumps(checkpoint.to_dict(), default=str))
        self._uncounted.clear()
        return self._bytes


ENGINE = EngineInfo(
    name="agentstateprotocol",
    label="AgentStateProtocol, memory",
    open=AgentStateProtocol,
    environment="peers",
    package="agentstateprotocol",
    imports="agentstateprotocol",
    note="bytes are its checkpoints as compact JSON, the form in which its storage keeps them; "
    "in memory it holds Python objects that share their strings",
)
