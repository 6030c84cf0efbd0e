"""Runs the Python examples of a page of the documentation."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from ropewalk.codec import default_registry

BLOCK = re.compile(r"^```python[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def python_blocks(page: Path) -> list[tuple[int, str]]:
    """The Python examples of a page, each with the line on which it starts."""
    text = page.read_text(encoding="utf-8")
    return [(text.count("\n", 0, found.start(1)), found[1]) for found in BLOCK.finditer(text)]


def run_page(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the examples of a page, in order and in one namespace."""
    # What a page declares for its program ends with it.
    for table in ("_by_class", "_by_name"):
        monkeypatch.setattr(default_registry, table, dict(getattr(default_registry, table)))
    # A real module, because dataclasses and pydantic look up where a class was made.
    module = ModuleType("example")
    monkeypatch.setitem(sys.modules, "example", module)
    for line, source in python_blocks(page):
        # Blank lines in front make a traceback show the page's own line.
        code = compile("\n" * line + source, str(page), "exec", dont_inherit=True)
        exec(code, vars(module))
