"""Ropewalk on SQLite, opened by its URL."""

from __future__ import annotations

from bench._model import Engine, EngineInfo, Place


def _open(place: Place) -> Engine:
    from bench._served import opened

    return opened(place)


ENGINE = EngineInfo(
    name="engine-sqlite",
    label="Ropewalk, SQLite",
    open=_open,
    environment="ours",
    package="ropewalk",
    imports="ropewalk",
    note="the embedded store, for orientation: no server, and nothing to send",
    server="sqlite",
)
