"""In a real terminal: colours and progress. In a pipe: none of that."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.support import environment, process, terminal

ESCAPE = "\x1b"


@pytest.mark.parametrize("command", ["tree", "log", "branches", "diff"])
def test_colours_appear_on_a_terminal(page: Path, command: str) -> None:
    code, shown = terminal(command, cwd=page)

    assert code == 0
    assert f"{ESCAPE}[" in shown


@pytest.mark.parametrize("command", ["tree", "log", "branches", "diff", "check", "stats"])
def test_a_pipe_gets_plain_text(page: Path, command: str) -> None:
    done = process(command, cwd=page, env={"TERM": "xterm-256color"})

    assert done.code == 0
    assert done.err == ""
    assert ESCAPE not in done.out


def test_no_colour_can_be_asked_for(page: Path) -> None:
    assert ESCAPE not in terminal("tree", cwd=page, NO_COLOR="1")[1]


def test_a_terminal_that_can_do_nothing_gets_plain_text(page: Path) -> None:
    code, shown = terminal("check", cwd=page, TERM="dumb")

    assert code == 0
    assert ESCAPE not in shown


def test_long_lines_are_not_cut(page: Path) -> None:
    _, shown = terminal("ops", "--json", cwd=page, COLUMNS="40")

    assert '"write_id"' in shown.splitlines()[0]


@pytest.mark.parametrize("command", [("check",), ("gc",), ("stats",), ("export", "run.session")])
def test_long_work_shows_how_far_it_is(page: Path, command: tuple[str, ...]) -> None:
    code, shown = terminal(*command, cwd=page)

    assert code == 0
    assert "objects" in shown
    assert f"{ESCAPE}[?25l" in shown  # The cursor is hidden while a bar is drawn,
    assert f"{ESCAPE}[?25h" in shown  # and comes back.
    assert f"{ESCAPE}[?25l" not in terminal(*command, "-q", cwd=page)[1]


def test_errors_are_readable_on_a_terminal(page: Path) -> None:
    code, shown = terminal("show", "nothing", cwd=page)

    assert code == 4
    assert shown.startswith("Error: there is no branch")


def test_an_old_encoding_gets_what_it_can_say(page: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ropewalk", "tree"],
        cwd=page,
        env={**environment(PYTHONIOENCODING="ascii"), "PYTHONUTF8": "0"},
        capture_output=True,
        check=True,
    )

    assert done.stdout.isascii()
    assert b"|- o Collected candidates" in done.stdout


def test_the_shell_completes_branches_and_agents(page: Path) -> None:
    def completed(line: str) -> str:
        env = {
            "_ROPEWALK_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(line.split(" ")) - 1),
        }
        return process(cwd=page, env=env).out

    assert completed("ropewalk switch re").split() == ["reviews-first"]
    assert completed("ropewalk log --timeline re").split() == ["research-agent"]
    assert "rollback" in completed("ropewalk roll")
