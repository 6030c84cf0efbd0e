"""Logs of processes that end, fork, or share a file."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ropewalk.coherence.logs import Logs
from tests.coherence.log_records import fetched, happened, records_in


def run(program: str, *arguments: str) -> None:
    subprocess.run([sys.executable, "-c", program, *arguments], check=True, timeout=60)


def test_what_is_queued_is_written_when_the_interpreter_ends(tmp_path: Path) -> None:
    path = tmp_path / "state.jsonl"
    run(
        "import sys\n"
        "from ropewalk.coherence.logs import Logs\n"
        "logs = Logs(sys.argv[1])\n"
        "for n in range(1000): logs.transition('a', 'x', 'INVALID', 'SHARED', 'fetch', n)\n",
        str(path),
    )

    assert len(happened(path)) == 1000
    assert records_in(path)[-1]["record"] == "end"


def _record_and_leave(path: str) -> None:
    logs = Logs(path)
    for version in range(100):
        fetched(logs, version)
    _KEPT.append(logs)


_KEPT: list[Logs] = []


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_what_is_queued_is_written_when_a_process_of_multiprocessing_ends(
    tmp_path: Path, method: str
) -> None:
    path = tmp_path / "state.jsonl"
    context: Any = multiprocessing.get_context(method)
    process = context.Process(target=_record_and_leave, args=(str(path),))
    process.start()
    process.join(60)

    assert len(happened(path)) == 100
    assert records_in(path)[-1]["record"] == "end"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_numbers_an_instance_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "state.jsonl"
    run(
        "import os, sys\n"
        "from ropewalk.coherence.logs import Logs\n"
        "logs = Logs(sys.argv[1], instance_id='one')\n"
        "logs.transition('a', 'parent', 'INVALID', 'SHARED', 'fetch', 1)\n"
        "logs.flush(10)\n"
        "child = os.fork()\n"
        "logs.transition('a', 'both', 'INVALID', 'SHARED', 'fetch', 2)\n"
        "logs.close()\n"
        "if child: os.waitpid(child, 0)\n"
        "else: os._exit(0)\n",
        str(path),
    )

    by_instance: dict[str, list[int]] = {}
    for one in happened(path):
        by_instance.setdefault(one["instance_id"], []).append(one["sequence_number"])
    assert sorted(by_instance.values()) == [[1], [1, 2]]


def test_processes_that_share_a_file_do_not_mix_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "state.jsonl"
    program = (
        "import sys\n"
        "from ropewalk.coherence.logs import Logs\n"
        "with Logs(sys.argv[1]) as logs:\n"
        "    for n in range(2000): logs.transition('a', 'x', 'INVALID', 'SHARED', 'fetch', n)\n"
    )
    started = [subprocess.Popen([sys.executable, "-c", program, str(path)]) for _ in range(3)]
    codes = [one.wait(60) for one in started]

    assert codes == [0, 0, 0]
    assert len(happened(path)) == 6000
