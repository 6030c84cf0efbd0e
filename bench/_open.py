"""Opens a store and reads one key in a fresh process: `python -m bench._open ENGINE FOLDER KEY`."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from bench._model import EngineInfo, Place
from bench._registry import engines


def _timed(info: EngineInfo, place: Place, key: str) -> tuple[float, Any]:
    began = time.perf_counter()
    engine = info.open(place)
    value = engine.get(key)
    seconds = time.perf_counter() - began
    engine.close()
    return seconds * 1e3, value


def main() -> None:
    """Write one line of JSON. The first time includes the imports, the second does not."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    engine, folder, key = sys.argv[1:]
    info, place = engines()[engine], Place(Path(folder))
    cold, _ = _timed(info, place, key)
    warm, value = _timed(info, place, key)
    answer.write(json.dumps({"cold_ms": cold, "open_ms": warm, "value": value}) + "\n")
    answer.close()


if __name__ == "__main__":
    main()
