"""Holdfast on SQLite, opened by its URL."""

from __future__ import annotations

from bench._model import Engine, EngineInfo, Place


def _open(place: Place) -> Engine:
    from bench._served import opened

    return opened(place)


ENGINE = EngineInfo(
    name="engine-sqlite",
    label="Holdfast, SQLite",
    open=_open,
    environment="ours",
    package="holdfast",
    imports="holdfast",
    note="the embedded store, for orientation: no server, and nothing to send",
    server="sqlite",
)
