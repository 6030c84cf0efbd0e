"""Ropewalk's `Versioned` on its embedded store."""

from __future__ import annotations

from bench._model import Engine, EngineInfo, Place


def _open(place: Place) -> Engine:
    from bench._states import VersionedOnDisk

    return VersionedOnDisk(place)


ENGINE = EngineInfo(
    name="versioned-disk",
    label="Ropewalk, Versioned, SQLite",
    open=_open,
    environment="ours",
    package="ropewalk",
    imports="ropewalk",
    note="durable: a commit that returned survives a power loss",
)
