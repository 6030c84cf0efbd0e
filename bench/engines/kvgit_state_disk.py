"""kvgit: a state held by a worktree on disk."""

from __future__ import annotations

from importlib import import_module

from bench._model import EngineInfo, Place
from bench.engines._diskcache import OWN_NOTE
from bench.engines.kvgit_state import KvgitState


class KvgitStateDisk(KvgitState):
    """The same on a folder, as durable as it is by itself."""

    def __init__(self, place: Place) -> None:
        super().__init__(import_module("kvgit.kv").Disk(str(place.folder)))

    def close(self) -> None:
        self._backend.close()


ENGINE = EngineInfo(
    name="kvgit-state-disk",
    label="kvgit, disk",
    open=KvgitStateDisk,
    environment="peers",
    package="kvgit",
    imports="kvgit",
    note=f"{OWN_NOTE}. It detects no change in place either",
)
