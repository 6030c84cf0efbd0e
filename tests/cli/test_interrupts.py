"""An interrupt at any moment: no traceback, the exit of an interrupted program, a sound store."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.support import PROGRAM, environment, here

# Interrupts the process when it begins to import a module: `sitecustomize` is imported while
# Python starts, before the first line of the program.
AT_AN_IMPORT = """
import os, sys

SIGINT = 2  # Importing its name here would take that import from the program.

class Interrupting:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == os.environ["INTERRUPT_AT"]:
            sys.meta_path.remove(Interrupting)
            os.kill(os.getpid(), SIGINT)

sys.meta_path.insert(0, Interrupting)
"""
SCRIPT = [sys.executable, "-c", "from ropewalk.cli import main; main()"]
"""What the installed program does."""


def interrupted_at(module: str, program: list[str], folder: Path) -> tuple[int, str]:
    """The exit and the errors of a command that is interrupted when it imports a module."""
    (folder / "sitecustomize.py").write_text(AT_AN_IMPORT)
    done = subprocess.run(
        [*program, "log", "--json"],
        cwd=folder, env=environment(PYTHONPATH=str(folder), INTERRUPT_AT=module),
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.stdout == ""
    return done.returncode, done.stderr


@pytest.mark.parametrize("program", [PROGRAM, SCRIPT], ids=["module", "script"])
@pytest.mark.parametrize(
    "module",
    # From the first that the program imports to the last before a command begins.
    ["signal", "enum", "typer", "ropewalk.cli.app", "ropewalk.store", "zstandard",
     "ropewalk.threads", "ropewalk.cli.conversations"],
)  # fmt: skip
def test_an_interrupt_while_the_program_is_imported_says_nothing(
    tmp_path: Path, module: str, program: list[str]
) -> None:
    # By the signal, as a shell expects it, or with the code that a shell makes of that.
    assert interrupted_at(module, program, tmp_path) in [(-signal.SIGINT, ""), (130, "")]


def test_an_interrupt_while_a_command_imports_what_it_needs_is_told(page: Path) -> None:
    code, said = interrupted_at("ropewalk.store.sqlite.store", PROGRAM, page)

    assert (code, said) == (130, "Interrupted. What was finished before stays.\n")
    assert here("check").code == 0


def test_interrupts_that_are_ignored_stay_so(page: Path) -> None:
    (page / "sitecustomize.py").write_text(AT_AN_IMPORT)
    done = subprocess.run(
        [*PROGRAM, "log", "-q"],
        cwd=page, env=environment(PYTHONPATH=str(page), INTERRUPT_AT="typer"),
        stdout=subprocess.PIPE, text=True, timeout=120, check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )  # fmt: skip

    assert done.returncode == 0
    assert done.stdout == here("log", "-q").out
