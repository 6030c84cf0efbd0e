"""agex: `Versioned` on its memory store."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from bench._model import Engine, EngineInfo


class Agex(Engine):
    """The whole value as one key; single keys for keyed work."""

    def __init__(self, kept: Any = None, key: str = "value") -> None:
        super().__init__()
        self._versioned = import_module("agex.state").Versioned
        self._kept = import_module("agex.state.kv").Memory() if kept is None else kept
        self._handle = self._versioned(self._kept)
        self._key = key

    def commit(self, value: Any) -> None:
        self.put(self._key, value)

    def read(self) -> Any:
        return self.get(self._key)

    def stored_bytes(self) -> int:
        return sum(len(value) for _, value in self._kept.items())

    def load(self, pairs: Mapping[str, Any]) -> None:
        for key, value in pairs.items():
            self._handle.set(key, value)
        self._handle.snapshot()

    def put(self, key: str, value: Any) -> None:
        self._handle.set(key, value)
        self._handle.snapshot()

    def get(self, key: str) -> Any:
        return self._versioned(self._kept).get(key)


ENGINE = EngineInfo(
    name="agex",
    label="agex 0.3, memory",
    open=Agex,
    environment="peers",
    package="agex",
    imports="agex.state",
)
