"""The search for an interpreter that frameworks need."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
OWN = f"{sys.version_info.major}.{sys.version_info.minor}"


def find(version: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Look where nothing is but what a test put into a folder."""
    return subprocess.run(
        [sys.executable, str(ROOT / "tools/find_python.py"), version],
        env={**os.environ, "PATH": str(folder), "PYENV_ROOT": str(folder / "pyenv")},
        capture_output=True,
        text=True,
        check=False,
    )


def put_python(place: Path, version: str) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(f"#!/bin/sh\necho {version}\n")
    place.chmod(0o755)


def test_an_interpreter_that_is_new_enough_is_taken_itself(tmp_path: Path) -> None:
    assert find(OWN, tmp_path).stdout.strip() == sys.executable


def test_one_on_the_path_goes_before_one_of_pyenv(tmp_path: Path) -> None:
    put_python(tmp_path / "python3.14", "3.14")
    put_python(tmp_path / "pyenv/versions/3.14.1/bin/python3.14", "3.14")

    assert find("3.14", tmp_path).stdout.strip() == str(tmp_path / "python3.14")


def test_a_shim_that_does_not_run_is_passed_over(tmp_path: Path) -> None:
    behind = tmp_path / "pyenv/versions/3.14.1/bin/python3.14"
    put_python(behind, "3.14")
    shim = tmp_path / "python3.14"
    put_python(shim, "3.14")
    shim.write_text("#!/bin/sh\nexit 127\n")

    assert find("3.14", tmp_path).stdout.strip() == str(behind)


def test_where_there_is_none_one_sentence_says_so(tmp_path: Path) -> None:
    done = find("3.14", tmp_path)

    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("these tests need Python 3.14 or newer")
    assert "PYTHON=" in done.stderr and done.stderr.count("\n") == 1
