"""Where the benchmarks touch Ropewalk's checkpointer for LangGraph."""

from __future__ import annotations

from typing import Any

from bench._model import Place
from bench.engines.savers import Saver
from ropewalk.adapters.langgraph import RopewalkSaver


class RopewalkSide(Saver):
    """One saver for all threads, on the store of a URL, or in a folder."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self._saver: Any = RopewalkSaver(place.url or str(place.folder / "agent.ropewalk"))

    def checkpointer(self) -> Any:
        return self._saver

    def close(self) -> None:
        self._saver.close()


class RopewalkDelta(RopewalkSide):
    """The same for graphs with a DeltaChannel."""

    delta = True
