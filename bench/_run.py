"""Runs the units of a scenario: fresh processes, sides in turn, several repetitions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench._clock import Summary, summarise
from bench._environment import ROOT, Environment
from bench._model import EngineInfo, Scenario


@dataclass
class Side:
    """What the repetitions of one engine found, or why there is nothing."""

    figures: dict[str, Summary] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    version: str | None = None
    failure: str | None = None
    courses: dict[str, list[Summary]] = field(default_factory=dict)
    """Figures at equal marks of the work, as far as every repetition came."""


@dataclass
class Outcome:
    """All sides of one scenario."""

    scenario: Scenario
    size: Mapping[str, int]
    repeat: int
    sides: dict[str, Side]


class UnitFailed(Exception):
    """A unit did not give a result."""


def run_scenario(
    scenario: Scenario,
    infos: Mapping[str, EngineInfo],
    names: Sequence[str],
    size: Mapping[str, int],
    repeat: int,
    environments: Mapping[str, Environment],
    say: Callable[[str], None],
) -> Outcome:
    """Run every side `repeat` times, starting each round with another side."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    failures: dict[str, str] = {}
    for turn in range(repeat):
        for name in _rotated(names, turn):
            if name in failures:
                continue
            began = time.monotonic()
            try:
                found[name].append(_unit(scenario, infos[name], size, environments))
                told = f"{time.monotonic() - began:.1f} s"
            except UnitFailed as failure:
                failures[name] = told = str(failure)
            say(f"{scenario.name}: {infos[name].label}, {turn + 1} of {repeat}: {told}")
    sides = {name: _side(found[name], failures.get(name)) for name in names}
    return Outcome(scenario, size, repeat, sides)


def _rotated(names: Sequence[str], turn: int) -> list[str]:
    at = turn % len(names)
    return [*names[at:], *names[:at]]


def _unit(
    scenario: Scenario,
    info: EngineInfo,
    size: Mapping[str, int],
    environments: Mapping[str, Environment],
) -> dict[str, Any]:
    # On the disk of the repository, and gone afterwards also when the unit was killed.
    with TemporaryDirectory(prefix=".bench-work-", dir=ROOT) as folder:
        return _unit_in(folder, scenario, info, size, environments)


def _unit_in(
    folder: str,
    scenario: Scenario,
    info: EngineInfo,
    size: Mapping[str, int],
    environments: Mapping[str, Environment],
) -> dict[str, Any]:
    python = _interpreter(info, environments)
    command = [str(python), "-m", "bench._unit", scenario.name, info.name, json.dumps(dict(size))]
    environ = {**os.environ, "PYTHONHASHSEED": "0", "TMPDIR": folder}
    # Installed peers have their bytecode; ours is kept after the first start too.
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    ours = info.environment == "ours" or info.package == "ropewalk"
    environ["PYTHONPATH"] = str(ROOT / "src") if ours else ""
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environ,
            capture_output=True,
            text=True,
            timeout=scenario.timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UnitFailed(f"stopped after {scenario.timeout} s") from None
    if done.returncode != 0:
        raise UnitFailed(_reason(done))
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _interpreter(info: EngineInfo, environments: Mapping[str, Environment]) -> Path:
    if info.environment == "ours":
        return Path(sys.executable)
    if info.environment not in environments and info.package == "ropewalk":
        return Path(sys.executable)  # Ours needs no particular Python.
    if info.environment not in environments:
        raise UnitFailed(f"the environment {info.environment} could not be made")
    return environments[info.environment].python


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    told = lines[-1].strip() if lines else "no message"
    return f"exit code {done.returncode}: {told}".replace(str(ROOT), ".")[:300]


def _side(results: list[dict[str, Any]], failure: str | None) -> Side:
    if not results:
        return Side(failure=failure or "never ran")
    keys, courses_of = results[0]["figures"], results[0]["courses"]
    figures = {key: summarise([one["figures"][key] for one in results]) for key in keys}
    notes = list(dict.fromkeys(note for one in results for note in one["notes"]))
    courses = {key: _course([one["courses"][key] for one in results]) for key in courses_of}
    return Side(figures, notes, results[0]["version"], failure, courses)


def _course(repetitions: list[list[float]]) -> list[Summary]:
    return [summarise(marks) for marks in zip(*repetitions, strict=False)]
