"""A thread of Holdfast on its embedded store."""

from __future__ import annotations

from bench._model import Engine, EngineInfo, Place


def _open(place: Place) -> Engine:
    from bench._talks import ThreadOnDisk

    return ThreadOnDisk(place)


ENGINE = EngineInfo(
    name="threads-sqlite",
    label="Holdfast, SQLite",
    open=_open,
    environment="python-3.12",
    package="holdfast",
    imports="holdfast",
    note="put_messages; durable: what was put survives a power loss",
)
