"""Ropewalk's timeline on its embedded store, not waiting for the disk."""

from __future__ import annotations

from dataclasses import replace

from bench._model import Engine, EngineInfo, Place


def _open(place: Place) -> Engine:
    from bench._timeline import TimelineSteps, sqlite_store

    return TimelineSteps(replace(place, durability="relaxed"), sqlite_store)


ENGINE = EngineInfo(
    name="timeline-relaxed",
    label="Ropewalk, timeline, SQLite, relaxed",
    open=_open,
    environment="ours",
    package="ropewalk",
    imports="ropewalk",
    note="a checkpoint that returned survives a kill; a power loss may take the last moments",
)
