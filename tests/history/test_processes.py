"""History among processes: nothing is lost or made twice, and killing harms nothing."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from ropewalk.history import History
from ropewalk.store import SqliteStore
from ropewalk.testing.helpers import lines_until_killed
from tests.conftest import SOAK
from tests.history.workers import SPACE, START

ROOT = Path(__file__).parent.parent.parent
PROCESSES, THREADS, TOTAL = 4, 2, 300
COLLECTORS = 60 if SOAK else 4
ROUNDS = 200 if SOAK else 10


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


def test_processes_that_share_a_branch_lose_nothing(tmp_path: Path) -> None:
    said = together("share", tmp_path / "store")

    told = [acknowledged(lines) for lines in said]
    every = {token: id for one in told for token, id in one.items()}
    with SqliteStore(tmp_path / "store") as store:
        history = History(store, SPACE)
        value = history.value()
        assert value["count"] == len(every)
        assert Counter(value["log"]) == Counter(every.keys())
        counted = Counter(token.split(":")[0] for token in every)
        assert value["own"] == counted
        expect_once(history, every)


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


def test_collections_that_are_killed_beside_writers_harm_nobody(tmp_path: Path) -> None:
    folder, choose = tmp_path / "store", random.Random(2025)
    with SqliteStore(folder) as store:
        History(store, SPACE).open().commit(START)
    writers = [start("litter", folder, f"p{number}") for number in range(PROCESSES)]
    for writer in writers:
        begin(writer)
    collected = killed = 0
    while killed < COLLECTORS or not collected:
        assert killed < 100 * COLLECTORS, "nothing is ever collected"
        collected += collect_and_be_killed(folder, choose.randrange(4))
        killed += 1
    for writer in writers:
        begin(writer)  # To end: it is enough.
    told = [acknowledged(writer.communicate()[0].splitlines()) for writer in writers]

    assert [writer.returncode for writer in writers] == [0] * PROCESSES
    with SqliteStore(folder) as store:
        history = History(store, SPACE)
        expect_all(history, told)
        store.gc(recent=1)
        expect_all(history, told)


def collect_and_be_killed(folder: Path, collections: int) -> int:
    """Collect some times, then die in the next one; how many objects went."""
    collector = start("collect", folder)
    assert collector.stdout is not None
    begin(collector)
    freed = sum(int(collector.stdout.readline()) for _ in range(collections))
    collector.kill()
    collector.communicate()
    return freed


def expect_all(history: History, told: list[dict[str, bytes]]) -> None:
    """All that was acknowledged is in the branch, and the store is sound."""
    assert history.store.check(read_data=True).problems == ()
    value = history.value()
    assert value["count"] == sum(map(len, told))
    assert {name: number for name, (number, _) in value["own"].items()} == {
        f"p{number}": len(one) for number, one in enumerate(told) if one
    }
    every = {id for one in told for id in one.values()}
    assert every <= {one.id for one in history.ancestors()}
    assert set(history.branches()) == {"main"}


@pytest.mark.parametrize("durability", ["full", "relaxed"])
def test_a_killed_writer_takes_nothing_that_was_acknowledged(
    tmp_path: Path, durability: str
) -> None:
    folder, choose = tmp_path / "store", random.Random(2026)
    told: dict[str, bytes] = {}
    for number in range(ROUNDS // 2):
        told |= killed_after(start("write", folder, durability, number), choose.randrange(1, 20))

        with SqliteStore(folder) as store:
            history = History(store, SPACE)
            steps = list(history.steps())
            made = {str(len(steps) - place): one.id for place, one in enumerate(steps)}
            assert {count: made[count] for count in told} == told
            # The head is what was acknowledged last, or the one that was on its way.
            assert len(steps) - max(map(int, told)) in (0, 1)
            assert history.value()["count"] == history.metadata()["count"] == len(steps)
            assert store.check(read_data=True).problems == ()
            told = made


def killed_after(worker: subprocess.Popen[str], commits: int) -> dict[str, bytes]:
    """Let a worker commit so often, then kill it wherever it is; what it was told."""
    with worker:
        begin(worker)
        return acknowledged(lines_until_killed(worker, commits))
