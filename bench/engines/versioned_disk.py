"""Holdfast's `Versioned` on its embedded store."""

from __future__ import annotations

from bench._model import Engine, EngineInfo, Place


def _open(place: Place) -> Engine:
    from bench._states import VersionedOnDisk

    return VersionedOnDisk(place)


ENGINE = EngineInfo(
    name="versioned-disk",
    label="Holdfast, Versioned, SQLite",
    open=_open,
    environment="ours",
    package="holdfast",
    imports="holdfast",
    note="durable: a commit that returned survives a power loss",
)
