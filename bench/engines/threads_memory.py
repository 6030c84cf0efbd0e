"""A thread of Holdfast in memory."""

from __future__ import annotations

from bench._model import Engine, EngineInfo, Place


def _open(place: Place) -> Engine:
    from bench._talks import ThreadTalk

    return ThreadTalk()


ENGINE = EngineInfo(
    name="threads-memory",
    label="Holdfast, memory",
    open=_open,
    environment="python-3.12",
    package="holdfast",
    imports="holdfast",
    note="a commit for each message, with its history",
)
