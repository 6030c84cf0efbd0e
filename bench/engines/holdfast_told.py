"""Holdfast on its embedded store, told the path of each change."""

from __future__ import annotations

from bench._model import Engine, EngineInfo, Place


def _open(place: Place) -> Engine:
    from bench._holdfast import HoldfastTold, sqlite_store

    return HoldfastTold(place, sqlite_store)


ENGINE = EngineInfo(
    name="holdfast-told",
    label="Holdfast, SQLite, told the path",
    open=_open,
    environment="ours",
    package="holdfast",
    imports="holdfast",
    note="it is told the path of what changed, and reads only the nodes on the way",
)
