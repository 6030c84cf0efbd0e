"""Runs a module of the benchmarks in a fresh process, and takes the line of JSON that it writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from bench._environment import ROOT


def apart(module: str, *arguments: str) -> Any:
    """What `python -m MODULE ARGUMENTS` answers."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{module} failed in its own process: {done.stderr[-300:]}"
    return json.loads(done.stdout.splitlines()[-1])
