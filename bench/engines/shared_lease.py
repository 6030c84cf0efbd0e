"""Ropewalk's CoherentStore, strategy lease."""

from __future__ import annotations

from bench._model import Engine, EngineInfo, Place


def _open(place: Place | None = None) -> Engine:
    from bench._coherent import CoherentSide

    return CoherentSide("lease", place)


ENGINE = EngineInfo(
    name="shared-lease",
    label="CoherentStore, lease",
    open=_open,
    environment="peers",
    package="ropewalk",
    imports="ropewalk.adapters.langgraph",
    note="reads ask nobody for 300 s, unless they are told",
)
