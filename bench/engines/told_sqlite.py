"""Clients of two processes, which follow the log of an embedded store."""

from __future__ import annotations

from bench._model import Engine, EngineInfo, Place


def _open(place: Place) -> Engine:
    from bench._told import over_log

    return over_log(place)


ENGINE = EngineInfo(
    name="told-sqlite",
    label="SQLite",
    open=_open,
    environment="ours",
    package="ropewalk",
    imports="ropewalk.coherence",
    note="no bus: the log of the embedded store is followed",
    server="sqlite",
)
