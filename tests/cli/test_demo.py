"""The demo: with only the core, twice, and the command line opens what it leaves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ropewalk.cli import tell_story
from tests.cli.support import environment, here, process
from tests.postgres import PASSWORD

ROOT = Path(__file__).parents[2]

# Pretends that the extra is not installed.
WITHOUT = "import sys\nfor name in ('typer', 'rich', 'click'): sys.modules[name] = None\n"


def test_the_demo_needs_only_the_core_and_says_how_to_look(tmp_path: Path) -> None:
    program = WITHOUT + "import runpy; runpy.run_path(sys.argv.pop(), run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", program, str(ROOT / "examples/demo.py")],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True,
    )  # fmt: skip

    command = next(line for line in done.stdout.splitlines() if "ropewalk tree" in line)
    assert "times less" in done.stdout
    told = process(*command.split()[1:], cwd=tmp_path)
    assert told.code == 0
    assert told.out.strip() in done.stdout


def test_the_demo_can_be_told_again(empty: Path) -> None:
    assert [tell_story(), tell_story("elsewhere")] == ["demo", "demo"]
    assert here("demo").code == 0

    assert here("agents", "-q").out.split() == ["demo", "demo-2"]
    assert here("check", "--read-data").code == 0
    assert here("metrics", "--agent", "demo-2", "--json").record["failed_attempts"] == 3


def test_without_the_extra_the_program_says_what_to_install(tmp_path: Path) -> None:
    program = WITHOUT + "from ropewalk.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment(), capture_output=True,
        text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "pip install 'ropewalk[cli]'" in done.stderr


def test_on_a_server_no_folder_is_measured_and_no_password_repeated(
    postgres_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tell_story(postgres_url)

    told = capsys.readouterr().out
    assert "folder" not in told and "see `ropewalk stats`" in told
    assert "ROPEWALK_STORE" in told and "--store" not in told
    assert PASSWORD not in told
