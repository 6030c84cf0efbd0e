"""agex: a state held by `Versioned` on its memory store."""

from __future__ import annotations

from typing import Any

from bench._model import EngineInfo
from bench.engines._held import Held
from bench.engines.agex import Agex


class AgexState(Agex, Held):
    """It looks itself for changes in what was read, once in the time between two commits."""

    def look(self, name: str) -> Any:
        return self._handle.get(name)

    def set(self, name: str, value: Any) -> None:
        self._handle.set(name, value)

    def save(self) -> None:
        self._handle.snapshot()

    def reopen(self) -> None:
        self._handle = self._versioned(self._kept)


ENGINE = EngineInfo(
    name="agex-state",
    label="agex 0.3, memory",
    open=AgexState,
    environment="peers",
    package="agex",
    imports="agex.state",
    note="it loads a value at each first read after a commit, and pickles it again at the next "
    "commit to see whether it changed",
)
