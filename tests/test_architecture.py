"""The pictures in ARCHITECTURE.md show the modules that a call really passes."""

from __future__ import annotations

import re
from pathlib import Path

from ropewalk import SqliteStore, Timeline
from ropewalk.coherence import CoherenceCore
from tests.tracing import PACKAGE, PAGE, Passed, check_picture


def test_the_picture_of_a_step_names_what_a_checkpoint_passes(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "store") as store:
        agent = Timeline("agent", store)
        for step in range(2):
            agent.checkpoint({"step": step})

        passed = Passed().by(lambda: agent.checkpoint({"step": 2}))

    check_picture("A step", passed)


def test_the_picture_of_an_artifact_names_what_a_write_and_a_read_pass(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "store") as store, CoherenceCore(store) as shared:
        shared.write("planner", "plan", {"step": 0})
        shared.read("reviewer", "plan")

        passed = Passed()
        passed.by(lambda: shared.write("planner", "plan", {"step": 1}))
        passed.by(lambda: shared.read("reviewer", "plan"))

    check_picture("An artifact", passed.modules)


def test_every_folder_of_the_package_is_named() -> None:
    page = PAGE.read_text(encoding="utf-8")
    folders = {file.parent.relative_to(PACKAGE) for file in PACKAGE.rglob("*/__init__.py")}
    public = {one for one in folders if one.parts and one.parts[0] != "testing"}

    # A folder below one of LangGraph's is named beside it, by its own name.
    named = set(re.findall(r"`([a-z0-9_/]+)/`", page))
    assert {one for one in public if {one.as_posix(), one.name}.isdisjoint(named)} == set()


def test_every_module_that_is_named_is_there() -> None:
    named = re.findall(r"[a-z_][a-z_/]*/[a-z_]+\.py", PAGE.read_text(encoding="utf-8"))

    assert [name for name in named if not (PACKAGE / name).is_file()] == []
