"""The floor of those who pickle: the whole value again at every step."""

from __future__ import annotations

import pickle

from bench._model import Engine, EngineInfo
from bench.engines._floor import Floor


def _open() -> Engine:
    return Floor(lambda value: pickle.dumps(value, protocol=5), pickle.loads)


ENGINE = EngineInfo(
    name="pickle", label="floor: pickle, whole each step", open=_open, environment="ours"
)
