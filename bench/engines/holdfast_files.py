"""Holdfast on its store of plain files."""

from __future__ import annotations

from bench._model import Engine, EngineInfo, Place


def _open(place: Place) -> Engine:
    from bench._holdfast import HoldfastDisk, file_store

    return HoldfastDisk(place, file_store)


ENGINE = EngineInfo(
    name="holdfast-files",
    label="Holdfast, files",
    open=_open,
    environment="ours",
    package="holdfast",
    imports="holdfast",
    note="plain files; it is handed the whole value and not told what changed",
)
