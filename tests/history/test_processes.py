"""History among processes: nothing is lost or made twice, and nobody starves."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

from holdfast.history import History
from holdfast.store import SqliteStore
from tests.history.workers import SPACE, START

ROOT = Path(__file__).parent.parent.parent
PROCESSES, THREADS, TOTAL = 4, 2, 200


def start(*arguments: object) -> subprocess.Popen[str]:
    """A worker that is ready to begin."""
    worker = subprocess.Popen(
        [sys.executable, "-m", "tests.history.workers", *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert worker.stdout is not None
    assert worker.stdout.readline() == "ready\n"
    return worker


def begin(worker: subprocess.Popen[str]) -> None:
    assert worker.stdin is not None
    worker.stdin.write("\n")
    worker.stdin.flush()


def together(kind: str, folder: Path) -> list[list[str]]:
    """What each of some processes said that work on one branch."""
    with SqliteStore(folder) as store:
        History(store, SPACE).open().commit(START)
    workers = [start(kind, folder, f"p{number}", THREADS, TOTAL) for number in range(PROCESSES)]
    for worker in workers:
        begin(worker)
    outputs = [worker.communicate()[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * PROCESSES
    return [output.splitlines() for output in outputs]


def acknowledged(lines: list[str]) -> dict[str, bytes]:
    """The commit of each change that a worker was told is stored."""
    pairs = [line.split() for line in lines if line != "conflict"]
    return {token: bytes.fromhex(id) for token, id in pairs}


def expect_once(history: History, told: dict[str, bytes]) -> None:
    """Each operation after the first is one acknowledged commit, and the other way round."""
    targets = [one.moves[0].target for one in history.operations(limit=10 * TOTAL)][1:]
    assert Counter(targets) == Counter(told.values())
    assert history.store.check(read_data=True).ok


def expect_fair(told: list[dict[str, bytes]]) -> None:
    done = [len(one) for one in told]
    assert 3 * min(done) >= max(done), done


def test_processes_that_share_a_branch_lose_nothing_and_starve_nobody(tmp_path: Path) -> None:
    told = [acknowledged(lines) for lines in together("share", tmp_path / "store")]

    every = {token: id for one in told for token, id in one.items()}
    with SqliteStore(tmp_path / "store") as store:
        history = History(store, SPACE)
        value = history.value()
        assert value["count"] == len(every)
        assert Counter(value["log"]) == Counter(every.keys())
        counted = Counter(token.split(":")[0] for token in every)
        assert value["own"] == counted
        expect_once(history, every)
    expect_fair(told)


def test_processes_that_change_one_place_each_succeed_or_are_told(tmp_path: Path) -> None:
    said = together("contend", tmp_path / "store")

    told = [acknowledged(lines) for lines in said]
    every = {token: id for one in told for token, id in one.items()}
    with SqliteStore(tmp_path / "store") as store:
        history = History(store, SPACE)
        steps = list(history.steps())
        assert history.value()["count"] == len(every) == len(steps) - 1
        written = [history.value(one)["last"] for one in steps[:-1]]
        assert [every[token] for token in written] == [one.id for one in steps[:-1]]
        expect_once(history, every)
    assert sum(lines.count("conflict") for lines in said) > 0
    expect_fair(told)
