"""Clients of two processes, which tell each other through NATS."""

from __future__ import annotations

from bench._model import Engine, EngineInfo, Place


def _open(place: Place) -> Engine:
    from bench._told import over_nats

    return over_nats(place)


ENGINE = EngineInfo(
    name="told-nats",
    label="NATS",
    open=_open,
    environment="ours",
    package="ropewalk",
    imports="ropewalk.coherence",
    note="beside an embedded store",
    server="nats",
)
