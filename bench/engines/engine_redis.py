"""Ropewalk on Redis, opened by its URL."""

from __future__ import annotations

from bench._model import Engine, EngineInfo, Place


def _open(place: Place) -> Engine:
    from bench._served import opened

    return opened(place)


ENGINE = EngineInfo(
    name="engine-redis",
    label="Ropewalk, Redis",
    open=_open,
    environment="ours",
    package="ropewalk",
    imports="ropewalk",
    note="one store with its connections for the clients of a process",
    server="redis",
)
