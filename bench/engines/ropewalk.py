"""Ropewalk on its memory store."""

from __future__ import annotations

from bench._model import Engine, EngineInfo


def _open() -> Engine:
    from bench._ropewalk import Ropewalk

    return Ropewalk()


ENGINE = EngineInfo(
    name="ropewalk",
    label="Ropewalk, memory",
    open=_open,
    environment="ours",
    package="ropewalk",
    imports="ropewalk",
    note="bytes are all frames that were ever written; the ref move and its entry in the "
    "operation log are made but not counted",
)
