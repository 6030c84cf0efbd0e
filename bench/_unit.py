"""One measured unit, in a process of its own: `python -m bench._unit SCENARIO ENGINE SIZE`."""

from __future__ import annotations

import json
import os
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from bench._clock import cpu_seconds, peak_bytes
from bench._model import EngineInfo
from bench._registry import engines, scenarios


def _version(info: EngineInfo) -> str | None:
    if info.package == "ropewalk":  # Not installed in every environment.
        from ropewalk import __version__

        return __version__
    try:
        return version(info.package) if info.package else None
    except PackageNotFoundError:
        return None


def measure(scenario: str, engine: str, size: dict[str, int]) -> dict[str, Any]:
    """Run the unit and give back what it found, ready for JSON."""
    info = engines()[engine]
    found = scenarios()[scenario].run(info, size)
    figures = dict(found.figures)
    figures["unit_cpu_s"] = cpu_seconds()
    figures["peak_mb"] = peak_bytes() / 1e6
    return {
        "figures": figures,
        "notes": found.notes,
        "courses": found.courses,
        "version": _version(info),
    }


def main() -> None:
    """Write one line of JSON; whatever a peer prints goes to the error stream."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    scenario, engine, size = sys.argv[1:]
    answer.write(json.dumps(measure(scenario, engine, json.loads(size))) + "\n")
    answer.close()


if __name__ == "__main__":
    main()
