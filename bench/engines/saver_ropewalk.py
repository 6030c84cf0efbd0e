"""Ropewalk's checkpointer in graphs, on its embedded store."""

from __future__ import annotations

from bench._model import Engine, EngineInfo, Place


def _open(place: Place) -> Engine:
    from bench._savers import RopewalkSide

    return RopewalkSide(place)


ENGINE = EngineInfo(
    name="saver-ropewalk",
    label="RopewalkSaver",
    open=_open,
    environment="peers",
    package="ropewalk",
    imports="ropewalk.adapters.langgraph",
    note="on its embedded store, durable",
)
