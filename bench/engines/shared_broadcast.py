"""Ropewalk's CoherentStore, strategy broadcast."""

from __future__ import annotations

from bench._model import Engine, EngineInfo, Place


def _open(place: Place | None = None) -> Engine:
    from bench._coherent import CoherentSide

    return CoherentSide("broadcast", place)


ENGINE = EngineInfo(
    name="shared-broadcast",
    label="CoherentStore, broadcast",
    open=_open,
    environment="peers",
    package="ropewalk",
    imports="ropewalk.adapters.langgraph",
    note="reads ask nobody while the log was followed within a second",
)
