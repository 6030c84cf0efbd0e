"""The page about LlamaIndex in the documentation, and the example program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.frameworks.turn import ROOT
from tests.pages import run_page


# Of the framework itself.
@pytest.mark.filterwarnings("ignore:Skipping serialization of known unserializable key")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_examples_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    run_page(ROOT / "docs/frameworks/llamaindex.md", monkeypatch)


def test_the_example_goes_on_after_its_process_was_killed() -> None:
    said = subprocess.run(
        [sys.executable, "examples/llamaindex_research_workflow.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()

    assert said[:4] == ["retrieve", "rank", "killed", "answer"]
    assert said[4].startswith("200 documents, best: bees ")
    assert said[-1].endswith("answer: Ranked -> StopEvent")
