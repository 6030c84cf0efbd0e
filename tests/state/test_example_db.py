"""The example of a database in a task."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples/db.py"


def test_the_example_runs_and_shows_the_pattern() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)], capture_output=True, text=True, check=True, timeout=60
    )

    assert "found: 2" in done.stdout
    assert 'best: "Hawelka"' in done.stdout
    assert 'refused: state["cursor"] cannot be stored' in done.stdout
    assert "<sqlite3.Connection:" in done.stdout
