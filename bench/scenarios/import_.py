"""What one import adds to a bare interpreter."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from statistics import median

from bench._clock import cpu_seconds
from bench._model import EngineInfo, Measured, Metric, Scenario, Target
from bench.scenarios._sides import OURS, PEERS


def _child_ms(code: str) -> float:
    before = cpu_seconds()
    subprocess.run([sys.executable, "-c", code], check=True)
    return (cpu_seconds() - before) * 1e3


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Start interpreters in turn, with the import and without."""
    code = f"import {info.imports}"
    _child_ms(code)  # writes the bytecode
    pairs = [(_child_ms("pass"), _child_ms(code)) for _ in range(size["starts"])]
    bare, full = (median(times) for times in zip(*pairs, strict=True))
    return Measured({"added_ms": full - bare, "bare_ms": bare})


SCENARIO = Scenario(
    name="import",
    title="Import over a bare interpreter",
    run=run,
    engines=(OURS, *PEERS),
    metrics=(
        Metric("added_ms", "CPU added by the import", "ms", 1),
        Metric("bare_ms", "CPU of the bare interpreter", "ms", 1),
    ),
    size={"starts": 15},
    quick={"starts": 5},
    targets=(Target("added_ms", 60.0, "CPU added by `import ropewalk`"),),
    order=70,
    repeat=3,
)
