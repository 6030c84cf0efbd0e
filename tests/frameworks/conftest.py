"""Leaves out the tests of frameworks that are not installed here; `make frameworks` runs all."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
PACKAGES = {"agents": "agent_framework"}
"""What a framework is imported as, where that is not the name of its folder."""

collect_ignore = [
    folder.parent.name
    for folder in HERE.glob("*/__init__.py")
    if find_spec(PACKAGES.get(folder.parent.name, folder.parent.name)) is None
]
