"""Ropewalk on its embedded store."""

from __future__ import annotations

from bench._model import Engine, EngineInfo, Place


def _open(place: Place) -> Engine:
    from bench._ropewalk import RopewalkDisk, sqlite_store

    return RopewalkDisk(place, sqlite_store)


ENGINE = EngineInfo(
    name="ropewalk-disk",
    label="Ropewalk, SQLite",
    open=_open,
    environment="ours",
    package="ropewalk",
    imports="ropewalk",
    note="it is handed the whole value and not told what changed",
)
