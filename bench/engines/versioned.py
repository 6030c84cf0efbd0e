"""Ropewalk's `Versioned` on its memory store."""

from __future__ import annotations

from bench._model import Engine, EngineInfo


def _open() -> Engine:
    from bench._states import VersionedState

    return VersionedState()


ENGINE = EngineInfo(
    name="versioned",
    label="Ropewalk, Versioned, memory",
    open=_open,
    environment="ours",
    package="ropewalk",
    imports="ropewalk",
    note="bytes are all frames that were ever written, with the commits",
)
