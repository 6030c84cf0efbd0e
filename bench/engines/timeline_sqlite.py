"""Ropewalk's timeline on its embedded store."""

from __future__ import annotations

from bench._model import Engine, EngineInfo, Place


def _open(place: Place) -> Engine:
    from bench._timeline import TimelineSteps, sqlite_store

    return TimelineSteps(place, sqlite_store)


ENGINE = EngineInfo(
    name="timeline-sqlite",
    label="Ropewalk, timeline, SQLite",
    open=_open,
    environment="ours",
    package="ropewalk",
    imports="ropewalk",
    note="durable: a checkpoint that returned survives a power loss",
)
