"""agex: `Versioned` on its memory store."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from bench._model import Engine, EngineInfo

_KEY = "value"


class Agex(Engine):
    """The whole value as one key; single keys for keyed work."""

    def __init__(self) -> None:
        super().__init__()
        self._versioned = import_module("agex.state").Versioned
        self._memory = import_module("agex.state.kv").Memory()
        self._handle = self._versioned(self._memory)

    def commit(self, value: Any) -> None:
        self.put(_KEY, value)

    def read(self) -> Any:
        return self.get(_KEY)

    def stored_bytes(self) -> int:
        return sum(len(value) for _, value in self._memory.items())

    def load(self, pairs: Mapping[str, Any]) -> None:
        for key, value in pairs.items():
            self._handle.set(key, value)
        self._handle.snapshot()

    def put(self, key: str, value: Any) -> None:
        self._handle.set(key, value)
        self._handle.snapshot()

    def get(self, key: str) -> Any:
        return self._versioned(self._memory).get(key)


ENGINE = EngineInfo(
    name="agex",
    label="agex 0.3, memory",
    open=Agex,
    environment="peers",
    package="agex",
    imports="agex.state",
)
