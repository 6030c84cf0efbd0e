"""What the helpers promise to the tests that stand on them."""

from __future__ import annotations

import subprocess
import sys

from ropewalk.testing.helpers import lines_until_killed

PRINTS = "import sys, time; sys.stdout.write({!r}); sys.stdout.flush(); time.sleep(600)"


def printing(text: str) -> subprocess.Popen[str]:
    """A process that prints a text at once, and then waits to be killed."""
    return subprocess.Popen(
        [sys.executable, "-c", PRINTS.format(text)], stdout=subprocess.PIPE, text=True
    )


def test_lines_that_were_read_ahead_before_a_kill_are_counted() -> None:
    with printing("one\ntwo\nthree\n") as process:
        assert lines_until_killed(process, 1) == ["one", "two", "three"]
    assert process.returncode < 0


def test_a_line_that_the_kill_cut_is_left_out() -> None:
    with printing("one\ntwo\nthr") as process:
        assert lines_until_killed(process, 2) == ["one", "two"]


def test_a_process_that_ended_early_gives_the_lines_that_it_printed() -> None:
    done = subprocess.Popen(
        [sys.executable, "-c", "print('one')"], stdout=subprocess.PIPE, text=True
    )
    with done:
        assert lines_until_killed(done, 3) == ["one"]
