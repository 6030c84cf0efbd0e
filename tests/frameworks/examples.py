"""What the page and the example program of a framework must do, in its environment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.frameworks.turn import ROOT
from tests.pages import run_page


class ExampleSuite:
    """The page about a framework in the documentation, and the example program."""

    page: str

    def test_the_examples_of_the_page_run(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)

        run_page(ROOT / "docs/frameworks" / self.page, monkeypatch)

    def test_a_conversation_goes_on_from_one_run_of_the_example_to_the_next(
        self, tmp_path: Path
    ) -> None:
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
