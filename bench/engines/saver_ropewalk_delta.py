"""Ropewalk's checkpointer, in graphs whose growing channel is a DeltaChannel."""

from __future__ import annotations

from bench._model import Engine, EngineInfo, Place


def _open(place: Place) -> Engine:
    from bench._savers import RopewalkDelta

    return RopewalkDelta(place)


ENGINE = EngineInfo(
    name="saver-ropewalk-delta",
    label="RopewalkSaver with DeltaChannel",
    open=_open,
    environment="peers",
    package="ropewalk",
    imports="ropewalk.adapters.langgraph",
    note="the same, for the state with a DeltaChannel",
)
