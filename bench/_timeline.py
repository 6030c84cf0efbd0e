"""Where the benchmarks touch Ropewalk's timeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench._model import Place
from bench._ropewalk import file_store, sqlite_store
from bench.engines.timelines import Steps
from ropewalk.store import Store
from ropewalk.timeline import Timeline

__all__ = ["TimelineSteps", "file_store", "sqlite_store"]


class TimelineSteps(Steps):
    """The checkpoints of one agent's timeline. It is not told what changed."""

    can_look_back = True

    def __init__(self, place: Place, open_store: Callable[[Place], Store]) -> None:
        super().__init__()
        self._timeline = Timeline("bench", open_store(place))

    def save(self, state: Any, description: str, logic_step: str) -> None:
        self._timeline.checkpoint(state, description=description, logic_step=logic_step)

    def read(self) -> Any:
        return self._timeline.get_state()

    def history(self, limit: int) -> int:
        return len(self._timeline.history(limit=limit))

    def tree(self) -> str:
        return self._timeline.visualize_tree()

    def close(self) -> None:
        self._timeline.store.close()
