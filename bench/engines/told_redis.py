"""Clients of two processes, which tell each other through Redis."""

from __future__ import annotations

from bench._model import Engine, EngineInfo, Place


def _open(place: Place) -> Engine:
    from bench._told import over_redis

    return over_redis(place)


ENGINE = EngineInfo(
    name="told-redis",
    label="Redis",
    open=_open,
    environment="ours",
    package="ropewalk",
    imports="ropewalk.coherence",
    note="publish and subscribe, on the server of the store",
    server="redis",
)
