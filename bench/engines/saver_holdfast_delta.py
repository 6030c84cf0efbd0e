"""Holdfast's checkpointer, in graphs whose growing channel is a DeltaChannel."""

from __future__ import annotations

from bench._model import Engine, EngineInfo, Place


def _open(place: Place) -> Engine:
    from bench._savers import HoldfastDelta

    return HoldfastDelta(place)


ENGINE = EngineInfo(
    name="saver-holdfast-delta",
    label="HoldfastSaver with DeltaChannel",
    open=_open,
    environment="peers",
    package="holdfast",
    imports="holdfast.adapters.langgraph",
    note="the same, for the state with a DeltaChannel",
)
