"""Ropewalk's checkpointer in graphs, on Postgres."""

from __future__ import annotations

from bench._model import Engine, EngineInfo, Place


def _open(place: Place) -> Engine:
    from bench._savers import RopewalkSide

    return RopewalkSide(place)


ENGINE = EngineInfo(
    name="saver-ropewalk-postgres",
    label="RopewalkSaver, Postgres",
    open=_open,
    environment="peers",
    package="ropewalk",
    imports="ropewalk.adapters.langgraph",
    note="one saver for all threads",
    server="postgres",
)
