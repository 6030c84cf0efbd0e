"""Ropewalk's CoherentStore, strategy eager."""

from __future__ import annotations

from bench._model import Engine, EngineInfo, Place


def _open(place: Place | None = None) -> Engine:
    from bench._coherent import CoherentSide

    return CoherentSide("eager", place)


ENGINE = EngineInfo(
    name="shared-eager",
    label="CoherentStore, eager",
    open=_open,
    environment="peers",
    package="ropewalk",
    imports="ropewalk.adapters.langgraph",
    note="every read is confirmed; content is pushed",
)
