"""Which modules of Ropewalk a call passes, and which ones a section of ARCHITECTURE.md names."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import ropewalk

PACKAGE = Path(ropewalk.__file__).parent
PAGE = Path(__file__).parent.parent / "ARCHITECTURE.md"


class Passed:
    """Collects modules; also those that other threads pass, if its `note` is their profile."""

    def __init__(self) -> None:
        self.modules: set[str] = set()

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        """What `sys.setprofile` calls."""
        file = Path(frame.f_code.co_filename)
        if event == "call" and file.is_relative_to(PACKAGE):
            self.modules.add(file.relative_to(PACKAGE).as_posix())

    def by(self, call: Callable[[], object]) -> set[str]:
        """The modules that one call passes in this thread."""
        sys.setprofile(self.note)
        try:
            call()
        finally:
            sys.setprofile(None)
        return self.modules


def check_picture(section: str, passed: set[str]) -> None:
    """Assert that the picture of a section names the modules that were passed, and no other."""
    _, found, rest = PAGE.read_text(encoding="utf-8").partition(f"\n## {section}\n")
    assert found, f"ARCHITECTURE.md has no section {section!r}"
    picture = rest.partition("```\n")[2].partition("\n```")[0]
    named = set(re.findall(r"[a-z_][a-z_/]*\.py", picture))
    missing, surplus = sorted(passed - named), sorted(named - passed)
    assert not missing and not surplus, f"{section}: not named {missing}; not passed {surplus}"
