"""The example program of Agent Framework, run as its docstring says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.frameworks.turn import ROOT


def test_a_book_is_finished_by_processes_that_die(tmp_path: Path) -> None:
    said = [
        subprocess.run(
            [sys.executable, "examples/agent_framework_workflow.py", str(tmp_path / "store")],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for _ in range(3)
    ]

    wrote = [line for each in said for line in each.splitlines() if line.startswith("wrote")]
    assert wrote == [f"wrote chapter {number}" for number in range(1, 6)]
    assert "dies while it writes chapter 3" in said[0] and "the book: " in said[2]
