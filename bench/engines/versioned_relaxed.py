"""Ropewalk's `Versioned` on its embedded store, not waiting for the disk."""

from __future__ import annotations

from dataclasses import replace

from bench._model import Engine, EngineInfo, Place


def _open(place: Place) -> Engine:
    from bench._states import VersionedOnDisk

    return VersionedOnDisk(replace(place, durability="relaxed"))


ENGINE = EngineInfo(
    name="versioned-relaxed",
    label="Ropewalk, Versioned, SQLite, relaxed",
    open=_open,
    environment="ours",
    package="ropewalk",
    imports="ropewalk",
    note="a commit that returned survives a kill; a power loss may take the last moments",
)
