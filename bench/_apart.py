"""Runs a module or a function of the benchmarks in a fresh process, which answers in JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
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


def elsewhere(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function of a module returns in a fresh process; everything passes as JSON."""
    told = json.dumps(arguments)
    return apart("bench._apart", function.__module__, function.__name__, told)


def _main() -> None:
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    module, name, arguments = sys.argv[1:]
    found = getattr(import_module(module), name)(*json.loads(arguments))
    answer.write(json.dumps(found) + "\n")
    answer.close()


if __name__ == "__main__":
    _main()
