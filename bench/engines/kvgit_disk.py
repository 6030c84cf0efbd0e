"""kvgit on disk: a folder of diskcache, which is SQLite with large values as files."""

from __future__ import annotations

from importlib import import_module

from bench._model import EngineInfo, Place
from bench.engines._diskcache import NOTE, set_durability
from bench.engines.kvgit import Kvgit


class KvgitDisk(Kvgit):
    """The same worktree on its disk backend."""

    def __init__(self, place: Place) -> None:
        disk = import_module("kvgit.kv").Disk(str(place.folder))
        set_durability(disk.store, place.durability)
        super().__init__(disk, place.branch)

    def close(self) -> None:
        self._backend.close()


ENGINE = EngineInfo(
    name="kvgit-disk",
    label="kvgit, disk",
    open=KvgitDisk,
    environment="peers",
    package="kvgit",
    imports="kvgit",
    note=NOTE,
)
