"""Holdfast's checkpointer in graphs, on Postgres."""

from __future__ import annotations

from bench._model import Engine, EngineInfo, Place


def _open(place: Place) -> Engine:
    from bench._savers import HoldfastSide

    return HoldfastSide(place)


ENGINE = EngineInfo(
    name="saver-holdfast-postgres",
    label="HoldfastSaver, Postgres",
    open=_open,
    environment="peers",
    package="holdfast",
    imports="holdfast.adapters.langgraph",
    note="one saver for all threads",
    server="postgres",
)
