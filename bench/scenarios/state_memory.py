"""A run over a 100 MB value that no step reads: how much memory it takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from bench._clock import Stopwatch, folder_bytes
from bench._environment import ROOT
from bench._model import EngineInfo, Measured, Metric, Place, Scenario, Target
from bench.engines.states import SMALL, VALUE, Held, held
from bench.scenarios._sides import HELD_ON_DISK, PEERS_HELD_ON_DISK, TYPED_ON_DISK

_PIECE = 1_000_000


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Make the state here, take the steps in a fresh process, and read it back here."""
    value = _documents(size["megabytes"])
    with TemporaryDirectory() as name:
        place, watch = Place(Path(name)), Stopwatch()
        watch(partial(_make, info, place, value))
        stored = folder_bytes(place.folder)
        figures = _apart(info, place, size["steps"])
        grown = folder_bytes(place.folder) - stored
        _check(held(info.open(place)), value, size["steps"])
    figures["make_s"] = watch.cpu[0]
    figures["folder_mb"] = stored / 1e6
    figures["kb"] = grown / size["steps"] / 1e3
    return Measured(figures)


def _documents(count: int) -> list[dict[str, Any]]:
    random = Random(8)
    return [{"id": number, "data": random.randbytes(_PIECE)} for number in range(count)]


def _make(info: EngineInfo, place: Place, value: Any) -> None:
    state = held(info.open(place))
    state.set(VALUE, value)
    state.set(SMALL, 0)
    state.save()
    state.close()


def _apart(info: EngineInfo, place: Place, steps: int) -> dict[str, float]:
    command = [sys.executable, "-m", "bench._steps", info.name, str(place.folder), str(steps)]
    done = subprocess.run(
        command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"the steps failed in their own process: {done.stderr[-300:]}"
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def _check(state: Held, value: Any, steps: int) -> None:
    assert state.look(SMALL) == steps, "the last step did not read back"
    assert state.look(VALUE) == value, "the value did not read back"
    state.close()


def _small(side: str, what: str) -> Target:
    return Target("above_mb", 30.0, f"memory above the interpreter, {what}", side=side)


SCENARIO = Scenario(
    name="state-memory",
    title="100 steps over a state with a 100 MB value that no step reads",
    run=run,
    engines=(TYPED_ON_DISK, HELD_ON_DISK, *PEERS_HELD_ON_DISK),
    metrics=(
        Metric("above_mb", "peak above the interpreter", "MB", 1),
        Metric("interpreter_mb", "the interpreter with the package", "MB", 1),
        Metric("cpu_ms", "CPU per step", "ms", 3),
        Metric("kb", "new bytes per step", "KB", 2),
        Metric("make_s", "CPU to store the value", "s"),
        Metric("folder_mb", "folder with the value", "MB", 1),
    ),
    size={"megabytes": 100, "steps": 100},
    quick={"megabytes": 10, "steps": 10},
    targets=(_small(TYPED_ON_DISK, "AgentState"), _small(HELD_ON_DISK, "Versioned")),
    notes=(
        "The value, documents of 1 MB of random bytes, is stored by one process. Another opens "
        "the state, sets a number and commits or checkpoints, at each step; its peak is compared "
        "with its own just after the import of the package, before the state is opened.",
        "There is no such figure for stores in memory, which hold the value itself.",
    ),
    order=270,
    repeat=3,
)
