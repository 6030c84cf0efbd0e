"""agex: `Versioned` on disk, which is a folder of diskcache."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from bench._model import EngineInfo, Place
from bench.engines._diskcache import NOTE, set_durability
from bench.engines.agex import Agex

NO_LIMIT = 1 << 62


class AgexDisk(Agex):
    """The same, with a limit that is never reached: at its own of 1 GiB it drops live data."""

    def __init__(self, place: Place) -> None:
        self._disk = import_module("agex.state.kv").Disk(str(place.folder), size_limit=NO_LIMIT)
        set_durability(self._disk.store, place.durability)
        super().__init__(self._disk, place.branch)

    def load(self, pairs: Mapping[str, Any]) -> None:
        # It would write each key in a transaction of its own, for minutes.
        with self._disk.store.transact():
            super().load(pairs)

    def close(self) -> None:
        self._disk.store.close()


ENGINE = EngineInfo(
    name="agex-disk",
    label="agex 0.3, disk",
    open=AgexDisk,
    environment="peers",
    package="agex",
    imports="agex.state",
    note=f"{NOTE}. Its size limit of 1 GiB, at which it drops live data, is lifted. It has one "
    "head for all who write to a store, so several processes overwrite each other's commits",
)
