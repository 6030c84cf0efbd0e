"""agex: a state held by `Versioned` on disk."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from bench._model import EngineInfo, Place
from bench.engines._diskcache import OWN_NOTE
from bench.engines.agex_disk import NO_LIMIT
from bench.engines.agex_state import AgexState


class AgexStateDisk(AgexState):
    """The same on a folder, as durable as it is by itself."""

    def __init__(self, place: Place) -> None:
        self._disk = import_module("agex.state.kv").Disk(str(place.folder), size_limit=NO_LIMIT)
        super().__init__(self._disk)

    def load(self, pairs: Mapping[str, Any]) -> None:
        # It would write each key in a transaction of its own, for minutes.
        with self._disk.store.transact():
            super().load(pairs)

    def close(self) -> None:
        self._disk.store.close()


ENGINE = EngineInfo(
    name="agex-state-disk",
    label="agex 0.3, disk",
    open=AgexStateDisk,
    environment="peers",
    package="agex",
    imports="agex.state",
    note=f"{OWN_NOTE}. Its size limit of 1 GiB, at which it drops live data, is lifted",
)
