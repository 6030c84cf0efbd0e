"""Ropewalk's CoherentStore, strategy lazy, on SQLite."""

from __future__ import annotations

from bench._model import Engine, EngineInfo, Place


def _open(place: Place | None = None) -> Engine:
    from bench._coherent import CoherentSide

    return CoherentSide("lazy", place)


ENGINE = EngineInfo(
    name="shared-sqlite",
    label="CoherentStore, lazy, SQLite",
    open=_open,
    environment="peers",
    package="ropewalk",
    imports="ropewalk.adapters.langgraph",
    note="durable; every read is confirmed",
    server="sqlite",
)
