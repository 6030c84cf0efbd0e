"""Runs of `tests.races.race` in processes of their own, so that one that dies is a failure."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def race(face: str, seed: int, seconds: float) -> None:
    """Run a face; what it said and its seed are in the failure."""
    command = [sys.executable, "-m", "tests.races.race", face, str(seed), str(seconds)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=300 + 10 * seconds, check=False
    )
    assert done.returncode == 0, (
        f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr[-4000:]}"
    )
