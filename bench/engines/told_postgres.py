"""Clients of two processes, which tell each other through Postgres."""

from __future__ import annotations

from bench._model import Engine, EngineInfo, Place


def _open(place: Place) -> Engine:
    from bench._told import over_postgres

    return over_postgres(place)


ENGINE = EngineInfo(
    name="told-postgres",
    label="Postgres",
    open=_open,
    environment="ours",
    package="ropewalk",
    imports="ropewalk.coherence",
    note="LISTEN and NOTIFY, in the database of the store",
    server="postgres",
)
