"""A thread of Ropewalk in memory."""

from __future__ import annotations

from bench._model import Engine, EngineInfo, Place


def _open(place: Place) -> Engine:
    from bench._talks import ThreadTalk

    return ThreadTalk()


ENGINE = EngineInfo(
    name="threads-memory",
    label="Ropewalk, memory",
    open=_open,
    environment="python-3.12",
    package="ropewalk",
    imports="ropewalk",
    note="a commit for each message, with its history",
)
