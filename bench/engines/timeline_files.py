"""Ropewalk's timeline on its store of plain files."""

from __future__ import annotations

from bench._model import Engine, EngineInfo, Place


def _open(place: Place) -> Engine:
    from bench._timeline import TimelineSteps, file_store

    return TimelineSteps(place, file_store)


ENGINE = EngineInfo(
    name="timeline-files",
    label="Ropewalk, timeline, files",
    open=_open,
    environment="ours",
    package="ropewalk",
    imports="ropewalk",
    note="durable: a checkpoint that returned survives a power loss, in plain files",
)
