"""Where the benchmarks touch Ropewalk's typed state."""

from __future__ import annotations

from bench._model import Place
from bench._ropewalk import sqlite_store
from bench.engines.states import Checkpointed, Lines
from ropewalk import AgentState, Externalized, Inline, create_runtime


class State(AgentState):
    """One field whose content is in the store, and one that is in the checkpoints."""

    value: Externalized[object]
    small: Inline[object]


class TypedState(Checkpointed):
    """Its content is in a store on disk, its checkpoints in a file; it looks itself for changes."""

    def __init__(self, place: Place) -> None:
        self._store = sqlite_store(place)
        self._lines = Lines(place)
        super().__init__(State, create_runtime(backend=self._store))

    def _keep(self, checkpoint: str) -> None:
        self._lines.add(checkpoint)

    def _newest(self) -> str:
        return self._lines.newest()

    def close(self) -> None:
        self._store.close()
