"""The page about Deep Agents in the documentation, and the example program."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frameworks.turn import ROOT
from tests.pages import run_page


def test_the_examples_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    run_page(ROOT / "docs/frameworks/deepagents.md", monkeypatch)
