"""Ropewalk on its store of plain files."""

from __future__ import annotations

from bench._model import Engine, EngineInfo, Place


def _open(place: Place) -> Engine:
    from bench._ropewalk import RopewalkDisk, file_store

    return RopewalkDisk(place, file_store)


ENGINE = EngineInfo(
    name="ropewalk-files",
    label="Ropewalk, files",
    open=_open,
    environment="ours",
    package="ropewalk",
    imports="ropewalk",
    note="plain files; it is handed the whole value and not told what changed",
)
