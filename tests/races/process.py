"""Runs of `tests.races.race` in processes of their own, so that one that dies is a failure."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def race(face: str, seed: int, seconds: float) -> None:
    """Run a face; what it said and its seed are in the failure."""
    command = [sys.executable, "-m", "tests.races.race", face, str(seed), str(seconds)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        out, told = process.communicate(timeout=300 + 10 * seconds)
        ended = f"ended with {process.returncode}"
    except subprocess.TimeoutExpired:
        process.kill()
        out, told = process.communicate()
        ended = "did not end"
    assert process.returncode == 0, f"{' '.join(command)} {ended}:\n{out}\n{told[-12000:]}"
