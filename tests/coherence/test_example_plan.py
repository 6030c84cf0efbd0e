"""The example of agents in several processes with one plan."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples/coherence_plan.py"


def test_the_example_runs_and_shows_that_nothing_is_lost_or_stuck() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)], capture_output=True, text=True, check=True, timeout=120
    )

    assert "tasks: 12, findings: 12\nsome were done twice: False\n" in done.stdout
    assert "the last was written by a reviewer: True" in done.stdout
    assert "written by second-editor: Twelve modules, all fine." in done.stdout
