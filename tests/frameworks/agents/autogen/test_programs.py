"""The example program of AutoGen, run as its docstring says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.frameworks.turn import ROOT


def test_a_team_goes_on_from_one_run_of_the_example_to_the_next(tmp_path: Path) -> None:
    said = [
        subprocess.run(
            [sys.executable, "examples/autogen_multi_agent.py", str(tmp_path / "store"), task],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for task in ("a week in Rome", "two days in Oslo", "--rollback", "a day in Bergen")
    ]

    assert "it comes back: yes" in said[0]
    assert "goes on after: a week in Rome" in said[1]
    assert "goes on after: a week in Rome" in said[2] and "goes on after: a week" in said[3]
