"""The page about the adapter in the documentation, and its example program."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.frameworks.turn import ROOT
from tests.pages import run_page


def test_the_examples_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    run_page(ROOT / "docs/frameworks/langgraph-adapter.md", monkeypatch)


def test_the_example_program_says_what_is_saved() -> None:
    said = subprocess.run(
        [sys.executable, "examples/langgraph_rag.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    plain, small = (
        int(one.replace(",", "")) for one in re.findall(r"holds +([\d,]+) bytes[ ,]", said)[:2]
    )

    assert "the same answers with references: yes" in said
    assert small < plain / 100
    assert "the oldest of them still loads 200 documents" in said
