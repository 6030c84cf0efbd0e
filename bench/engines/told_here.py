"""Clients of one process, which tell each other in memory."""

from __future__ import annotations

from bench._model import Engine, EngineInfo, Place


def _open(place: Place) -> Engine:
    from bench._told import in_process

    return in_process(place)


ENGINE = EngineInfo(
    name="told-here",
    label="in process",
    open=_open,
    environment="ours",
    package="ropewalk",
    imports="ropewalk.coherence",
    note="two clients of one process, on a MemoryStore",
)
