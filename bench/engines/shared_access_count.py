"""Ropewalk's CoherentStore, strategy access_count."""

from __future__ import annotations

from bench._model import Engine, EngineInfo, Place


def _open(place: Place | None = None) -> Engine:
    from bench._coherent import CoherentSide

    return CoherentSide("access_count", place)


ENGINE = EngineInfo(
    name="shared-access-count",
    label="CoherentStore, access_count",
    open=_open,
    environment="peers",
    package="ropewalk",
    imports="ropewalk.adapters.langgraph",
    note="reads ask nobody 100 times, unless they are told",
)
