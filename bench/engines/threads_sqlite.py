"""A thread of Ropewalk on its embedded store."""

from __future__ import annotations

from bench._model import Engine, EngineInfo, Place


def _open(place: Place) -> Engine:
    from bench._talks import ThreadOnDisk

    return ThreadOnDisk(place)


ENGINE = EngineInfo(
    name="threads-sqlite",
    label="Ropewalk, SQLite",
    open=_open,
    environment="python-3.12",
    package="ropewalk",
    imports="ropewalk",
    note="put_messages; durable: what was put survives a power loss",
)
