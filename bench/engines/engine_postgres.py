"""Ropewalk on Postgres, opened by its URL."""

from __future__ import annotations

from bench._model import Engine, EngineInfo, Place


def _open(place: Place) -> Engine:
    from bench._served import opened

    return opened(place)


ENGINE = EngineInfo(
    name="engine-postgres",
    label="Ropewalk, Postgres",
    open=_open,
    environment="ours",
    package="ropewalk",
    imports="ropewalk",
    note="one store with its pool for the clients of a process",
    server="postgres",
)
