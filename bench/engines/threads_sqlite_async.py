"""A thread of Ropewalk on its embedded store, awaited."""

from __future__ import annotations

from bench._model import Engine, EngineInfo, Place


def _open(place: Place) -> Engine:
    from bench._talks import AwaitedThread

    return AwaitedThread(place)


ENGINE = EngineInfo(
    name="threads-sqlite-async",
    label="Ropewalk, SQLite, awaited",
    open=_open,
    environment="python-3.12",
    package="ropewalk",
    imports="ropewalk",
    note="aput_messages; durable as well",
)
