"""Holdfast on its embedded store."""

from __future__ import annotations

from bench._model import Engine, EngineInfo, Place


def _open(place: Place) -> Engine:
    from bench._holdfast import HoldfastDisk, sqlite_store

    return HoldfastDisk(place, sqlite_store)


ENGINE = EngineInfo(
    name="holdfast-disk",
    label="Holdfast, SQLite",
    open=_open,
    environment="ours",
    package="holdfast",
    imports="holdfast",
    note="it is handed the whole value and not told what changed",
)
