"""The page about agentflow in the documentation, and the example program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.frameworks.turn import ROOT
from tests.pages import run_page


def test_the_examples_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    run_page(ROOT / "docs/frameworks/agentflow.md", monkeypatch)


def test_a_conversation_goes_on_from_one_run_of_the_example_to_the_next(tmp_path: Path) -> None:
    said = [
        subprocess.run(
            [sys.executable, "examples/pyagenity_chat.py", str(tmp_path / "store"), wish],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for wish in ("a week in Rome", "two days in Oslo")
    ]

    assert "1 place so far: Rome" in said[0]
    assert "2 places so far: Rome, Oslo" in said[1]
    assert "a week in Rome" in said[1]
