"""Holdfast on its memory store."""

from __future__ import annotations

from bench._model import Engine, EngineInfo


def _open() -> Engine:
    from bench._holdfast import Holdfast

    return Holdfast()


ENGINE = EngineInfo(
    name="holdfast",
    label="Holdfast, memory",
    open=_open,
    environment="ours",
    package="holdfast",
    imports="holdfast",
    note="bytes are all frames that were ever written; the ref move and its entry in the "
    "operation log are made but not counted",
)
