"""Ropewalk on S3, opened by its URL."""

from __future__ import annotations

from bench._model import Engine, EngineInfo, Place


def _open(place: Place) -> Engine:
    from bench._served import opened

    return opened(place)


ENGINE = EngineInfo(
    name="engine-s3",
    label="Ropewalk, S3",
    open=_open,
    environment="ours",
    package="ropewalk",
    imports="ropewalk",
    note="one store for the clients of a process; spaces are in the bucket, by conditional puts",
    server="s3",
)
