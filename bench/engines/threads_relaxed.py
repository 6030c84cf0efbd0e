"""A thread of Ropewalk on its embedded store, without a sync for each message."""

from __future__ import annotations

from dataclasses import replace

from bench._model import Engine, EngineInfo, Place


def _open(place: Place) -> Engine:
    from bench._talks import ThreadOnDisk

    return ThreadOnDisk(replace(place, durability="relaxed"))


ENGINE = EngineInfo(
    name="threads-relaxed",
    label="Ropewalk, SQLite, relaxed",
    open=_open,
    environment="python-3.12",
    package="ropewalk",
    imports="ropewalk",
    note="relaxed: a power loss may take the last messages",
)
