"""Runs LangGraph's own tests with our checkpointer in the place of its own.

    python -m tests.frameworks.langgraph.upstream [--official] [FILE ...]

The tests come with the source distribution of the release that is installed, which pip downloads
once. `ROPEWALK_LANGGRAPH_TESTS` may name a folder that has them: a checkout's `libs/langgraph`.
`--official` leaves LangGraph's checkpointers where they are, to see what fails with those too.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

HERE = Path(__file__).parent
ROOT = HERE.parent.parent.parent
PLACE = "ROPEWALK_LANGGRAPH_TESTS"

SLICE = (
    "test_time_travel.py",
    "test_interrupt_state.py",
    "test_delta_channel_fork.py",
    "test_subgraph_persistence_async.py",
)
"""What `make test` runs."""
PERSISTENCE = (
    "test_channels.py",
    "test_checkpoint_migration.py",
    "test_delta_channel_*.py",
    "test_graph_callbacks.py",
    "test_interrupt*.py",
    "test_large_cases*.py",
    "test_messages_state.py",
    "test_parent_command*.py",
    "test_pregel*.py",
    "test_pydantic.py",
    "test_retry.py",
    "test_runtime.py",
    "test_serde_allowlist.py",
    "test_state.py",
    "test_stream_*.py",
    "test_strict_resume.py",
    "test_subgraph_*.py",
    "test_time_travel*.py",
    "test_tool_stream_handler.py",
)
"""Every file that uses a checkpointer."""


class Outcome(NamedTuple):
    """How many tests passed, which did not, and what pytest printed."""

    passed: int
    failed: dict[str, str]
    printed: str


def folder_of_tests(keep: Path) -> Path:
    """Where LangGraph's tests are; below `keep` if they must be downloaded."""
    given = os.environ.get(PLACE)
    if given:
        found = Path(given)
    else:
        found = keep / f"langgraph-{version('langgraph')}"
        if not (found / "tests").is_dir():
            _download(keep)
    if not (found / "tests" / "conftest.py").is_file():
        raise FileNotFoundError(f"{found} has no tests of LangGraph: give another in {PLACE}")
    return found


def _download(keep: Path) -> None:
    keep.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=keep) as folder:
        subprocess.run(
            [
                sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary",
                "langgraph", "--dest", folder, f"langgraph=={version('langgraph')}",
            ],
            check=True,
        )  # fmt: skip
        (packed,) = Path(folder).glob("*.tar.gz")
        with tarfile.open(packed) as archive:
            archive.extractall(keep, filter="data")


def run(
    folder: Path, patterns: Sequence[str], *, official: bool = False, more: Sequence[str] = ()
) -> Outcome:
    """Run files of these tests."""
    files = sorted({str(file) for one in patterns for file in (folder / "tests").glob(one)})
    if not files:
        raise FileNotFoundError(f"no file in {folder / 'tests'} is one of {patterns}")
    with TemporaryDirectory() as made:
        report = Path(made, "report.xml")
        plugin = [] if official else ["-p", "ropewalk_plugged"]
        done = subprocess.run(
            [
                sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin,
                "-o", "addopts=", f"--junitxml={report}", *more, *files,
            ],
            cwd=folder, env=_environment(), capture_output=True, text=True, check=False,
        )  # fmt: skip
        printed = done.stdout + done.stderr
        if not report.exists():
            raise RuntimeError(f"LangGraph's tests did not run: {printed[-4000:]}")
        return Outcome(*_read(report), printed)


def _environment() -> dict[str, str]:
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")
    }
    return {
        **inherited,
        "NO_DOCKER": "true",
        "PYTHONPATH": os.pathsep.join(
            filter(None, [str(HERE / "plugged"), os.environ.get("PYTHONPATH"), str(ROOT / "src")])
        ),
    }


def _read(report: Path) -> tuple[int, dict[str, str]]:
    passed, failed = 0, {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        bad = case.find("failure") if case.find("failure") is not None else case.find("error")
        if bad is not None:
            module = case.get("classname", "").removeprefix("tests.")
            failed[f"{module}::{case.get('name')}"] = bad.get("message") or ""
        elif case.find("skipped") is None:
            passed += 1
    return passed, failed


def main() -> int:
    """Run all or what is named; 1 if something failed."""
    arguments = sys.argv[1:]
    official = "--official" in arguments
    named = [one for one in arguments if one != "--official"]
    folder = folder_of_tests(Path(sys.prefix) / "upstream")
    outcome = run(folder, named or PERSISTENCE, official=official, more=["-n", "2"])
    print(f"{outcome.passed} passed, {len(outcome.failed)} failed")
    for name, why in sorted(outcome.failed.items()):
        print(f"  {name}: {why.splitlines()[0][:150] if why else ''}")
    return int(bool(outcome.failed))


if __name__ == "__main__":
    sys.exit(main())
