"""Ropewalk on its embedded store, told the path of each change."""

from __future__ import annotations

from bench._model import Engine, EngineInfo, Place


def _open(place: Place) -> Engine:
    from bench._ropewalk import RopewalkTold, sqlite_store

    return RopewalkTold(place, sqlite_store)


ENGINE = EngineInfo(
    name="ropewalk-told",
    label="Ropewalk, SQLite, told the path",
    open=_open,
    environment="ours",
    package="ropewalk",
    imports="ropewalk",
    note="it is told the path of what changed, and reads only the nodes on the way",
)
