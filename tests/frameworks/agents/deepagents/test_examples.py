"""The page about Deep Agents in the documentation, and the example program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.frameworks.turn import ROOT
from tests.pages import run_page


def test_the_examples_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    run_page(ROOT / "docs/frameworks/deepagents.md", monkeypatch)


def test_the_example_goes_on_from_one_run_to_the_next(tmp_path: Path) -> None:
    said = [
        subprocess.run(
            [sys.executable, "examples/deepagents_files.py", str(tmp_path / "store")],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for _ in range(2)
    ]

    assert "We go by train." in said[0] and "We go on foot." in said[1]
    assert "fork has: ['To Rome', 'by plane'] - trip has: ['To Rome', 'by train']" in said[0]
    assert said[1].count("edit /plan.md") == 3
