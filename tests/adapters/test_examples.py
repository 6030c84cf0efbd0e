"""Example programs for frameworks can be looked at where the framework is not installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDED = {
    "langgraph_rag": "langgraph",
    "llamaindex_research_workflow": "workflows",
    "pyagenity_chat": "agentflow",
}


@pytest.mark.parametrize("name", sorted(NEEDED))
def test_an_example_is_imported_without_its_framework(name: str) -> None:
    code = (
        f"import sys; sys.modules[{NEEDED[name]!r}] = None; sys.path.insert(0, 'examples')\n"
        f"import {name}; print({name}.__doc__)"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout

    assert "pip install" in said
