"""Ropewalk's CoherentStore, strategy lazy."""

from __future__ import annotations

from bench._model import Engine, EngineInfo, Place


def _open(place: Place | None = None) -> Engine:
    from bench._coherent import CoherentSide

    return CoherentSide("lazy", place)


ENGINE = EngineInfo(
    name="shared-lazy",
    label="CoherentStore, lazy",
    open=_open,
    environment="peers",
    package="ropewalk",
    imports="ropewalk.adapters.langgraph",
    note="the default: every read is confirmed",
)
