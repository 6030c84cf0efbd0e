"""How tests judge whether processes wait equally long for each other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fairness import expect_fair, waited

ROOT = Path(__file__).parents[1]
WORKER = (
    "import sys, time\n"
    "from tests.fairness import Stillness\n"
    "still, began = Stillness(), time.monotonic()\n"
    "print('ready', flush=True)\n"
    "sys.stdin.readline()\n"
    "print(still.since(began), flush=True)\n"
)


def test_who_waits_four_times_as_long_as_another_is_starved() -> None:
    often, seldom = [waited(8)] * 20, [waited(32)] * 5

    with pytest.raises(AssertionError):
        expect_fair([often, often, seldom])
    with pytest.raises(AssertionError):
        expect_fair([often, [waited(200)]])
    expect_fair([often, [waited(20)] * 3])


def test_who_was_stopped_all_the_time_is_not_judged() -> None:
    expect_fair([[waited(8)] * 20, ["5 c0ffee", "conflict"]])


def test_a_process_notices_that_it_stood_still() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WORKER],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as worker:  # fmt: skip
        assert worker.stdin is not None and worker.stdout is not None
        worker.stdout.readline()
        os.kill(worker.pid, signal.SIGSTOP)
        time.sleep(0.3)
        os.kill(worker.pid, signal.SIGCONT)
        said = worker.communicate("\n")[0]

    assert said == "True\n"
