"""The floor with compression: msgpack and zstd of the whole value at every step."""

from __future__ import annotations

from bench._model import Engine, EngineInfo
from bench.engines._floor import Floor


def _open() -> Engine:
    import ormsgpack
    import zstandard

    squeeze = zstandard.ZstdCompressor(level=3).compress
    expand = zstandard.ZstdDecompressor().decompress
    return Floor(
        lambda value: squeeze(ormsgpack.packb(value)),
        lambda data: ormsgpack.unpackb(expand(data)),
    )


ENGINE = EngineInfo(
    name="zstd", label="floor: ormsgpack + zstd, whole each step", open=_open, environment="ours"
)
