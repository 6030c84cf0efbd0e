"""Ropewalk's `AgentState` with an externalized field, on its embedded store."""

from __future__ import annotations

from bench._model import Engine, EngineInfo, Place


def _open(place: Place) -> Engine:
    from bench._typed import TypedState

    return TypedState(place)


ENGINE = EngineInfo(
    name="typed-disk",
    label="Ropewalk, AgentState, SQLite",
    open=_open,
    environment="ours",
    package="ropewalk",
    imports="ropewalk",
    note="durable; one externalized field, beside an inline number; the checkpoints, which "
    "belong to the user's framework, are lines of a file",
)
