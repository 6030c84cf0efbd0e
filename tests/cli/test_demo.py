"""The demo: with only the core, twice, and the command line opens what it leaves."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from ropewalk.cli import tell_story
from tests.cli.support import environment, here
from tests.postgres import PASSWORD

ROOT = Path(__file__).parents[2]

# Pretends that the extra is not installed.
WITHOUT = "import sys\nfor name in ('typer', 'rich', 'click'): sys.modules[name] = None\n"


def shell(command: str, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """What somebody gets who types a command in a folder."""
    return subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment(**more), capture_output=True,
        text=True, check=False,
    )  # fmt: skip


def commands_of(story: str) -> list[str]:
    """The last lines of a story: the commands that it ends with."""
    return [line.strip() for line in story[story.rindex(":\n") + 2 :].splitlines()]


@pytest.mark.parametrize(
    ("store", "more"),
    [
        ("", {}),
        ("'an other place'", {}),
        ("", {"ROPEWALK_STORE": "elsewhere"}),
    ],
    ids=["here", "there", "not the usual store"],
)
def test_the_last_lines_of_the_demo_are_commands_that_run_as_printed(
    tmp_path: Path, store: str, more: dict[str, str]
) -> None:
    told = shell(f"{sys.executable} {ROOT / 'examples/demo.py'} {store}", tmp_path, **more)

    commands = commands_of(told.stdout)
    assert told.returncode == 0 and "times less" in told.stdout
    assert len(commands) == 3
    for command in commands:
        shown = shell(command, tmp_path, **more)
        assert (shown.returncode, shown.stderr) == (0, "")
        if " tree" in command:
            drawn, _, legend = shown.stdout.strip().rpartition("\n")
            assert drawn in told.stdout and legend.startswith("Signs: ")


def test_the_commands_begin_with_the_program_as_the_shell_finds_it(tmp_path: Path) -> None:
    folder = Path(sysconfig.get_path("scripts"))
    tell = f"{sys.executable} -m ropewalk demo"
    found = shell(tell, tmp_path, PATH=f"{folder}{os.pathsep}{os.environ['PATH']}").stdout
    (tmp_path / "env").symlink_to(folder.parent)
    below = shell(f"env/bin/{Path(sys.executable).name} -m ropewalk demo", tmp_path).stdout

    assert [one.split()[0] for one in commands_of(found)] == ["ropewalk"] * 3
    for command in commands_of(below):
        assert shell(command, tmp_path).returncode == 0


def test_the_demo_needs_only_the_core_and_says_how_to_get_the_command_line(
    tmp_path: Path,
) -> None:
    program = WITHOUT + "import runpy; runpy.run_path(sys.argv.pop(), run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", program, str(ROOT / "examples/demo.py")],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert f"{sys.executable} -m pip install 'ropewalk[cli]'" in done.stdout
    assert len(commands_of(done.stdout)) == 3


def test_the_demo_can_be_told_again(empty: Path) -> None:
    assert [tell_story(), tell_story("elsewhere")] == ["demo", "demo"]
    assert here("demo").code == 0

    assert here("agents", "-q").out.split() == ["demo", "demo-2"]
    assert here("check", "--read-data").code == 0
    assert here("metrics", "--timeline", "demo-2", "--json").record["failed_attempts"] == 3


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
