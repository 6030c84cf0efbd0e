"""Holdfast's checkpointer in graphs, on its embedded store."""

from __future__ import annotations

from bench._model import Engine, EngineInfo, Place


def _open(place: Place) -> Engine:
    from bench._savers import HoldfastSide

    return HoldfastSide(place)


ENGINE = EngineInfo(
    name="saver-holdfast",
    label="HoldfastSaver",
    open=_open,
    environment="peers",
    package="holdfast",
    imports="holdfast.adapters.langgraph",
    note="on its embedded store, durable",
)
