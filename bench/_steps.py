"""Takes steps over a state in a process of its own, and says how much memory they took.

`python -m bench._steps ENGINE FOLDER STEPS` writes one line of JSON. Nobody reads the large value.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from importlib import import_module
from pathlib import Path

from bench._clock import Stopwatch, own_peak_bytes
from bench._model import EngineInfo, Place
from bench._registry import engines
from bench.engines.states import SMALL, Held, held


def _steps(info: EngineInfo, folder: Path, steps: int) -> dict[str, float]:
    assert info.imports is not None, "a floor takes no steps"
    import_module(info.imports)
    before, watch = own_peak_bytes(), Stopwatch()
    state = held(info.open(Place(folder)))
    for number in range(1, steps + 1):
        watch(partial(_step, state, number))
    state.close()
    above = own_peak_bytes() - before
    return {
        "above_mb": above / 1e6,
        "interpreter_mb": before / 1e6,
        "cpu_ms": sum(watch.cpu) / steps * 1e3,
    }


def _step(state: Held, number: int) -> None:
    state.set(SMALL, number)
    state.save()


def main() -> None:
    """Whatever a peer prints goes to the error stream."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    engine, folder, steps = sys.argv[1:]
    answer.write(json.dumps(_steps(engines()[engine], Path(folder), int(steps))) + "\n")
    answer.close()


if __name__ == "__main__":
    main()
