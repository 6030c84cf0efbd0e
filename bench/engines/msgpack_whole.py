"""The floor of those who use msgpack: the whole value again at every step."""

from __future__ import annotations

from bench._model import Engine, EngineInfo
from bench.engines._floor import Floor


def _open() -> Engine:
    import ormsgpack

    return Floor(ormsgpack.packb, ormsgpack.unpackb)


ENGINE = EngineInfo(
    name="msgpack", label="floor: ormsgpack, whole each step", open=_open, environment="ours"
)
