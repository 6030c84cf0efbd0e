"""States among processes: nothing is lost or made twice, and killing harms nothing."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from ropewalk.state import Versioned
from ropewalk.testing.helpers import lines_until_killed
from tests.conftest import SOAK
from tests.state.large import messages
from tests.state.versioned_workers import ENGINES, RULES, shown

ROOT = Path(__file__).parent.parent.parent
ROUNDS = 200 if SOAK else 10
ENGINE = pytest.mark.parametrize("engine", list(ENGINES))


def start(*arguments: object) -> subprocess.Popen[str]:
    """A worker that is ready to begin."""
    worker = subprocess.Popen(
        [sys.executable, "-m", "tests.state.versioned_workers", *map(str, arguments)],
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


def together(kind: str, engine: str, folder: Path, processes: int, count: int) -> list[str]:
    """What processes said that did so many steps each, at the same time."""
    workers = [start(kind, engine, folder, f"p{number}", count) for number in range(processes)]
    for worker in workers:
        begin(worker)
    outputs = [worker.communicate()[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * processes
    return [line for output in outputs for line in output.splitlines()]


@ENGINE
def test_two_processes_with_keys_of_their_own_keep_all_of_them(
    engine: str, memory_folder: Path
) -> None:
    count = 100 if engine == "sqlite" or SOAK else 25
    told = together("own", engine, memory_folder / "store", 2, count)

    with ENGINES[engine](memory_folder / "store") as store:
        state = Versioned(store)
        assert len(told) == 2 * count
        assert set(state) == set(told)
        assert all(state[f"{by}/{n}"] == {"by": by, "number": n} for by, n in pairs(told))
        assert len(state.history()) == 2 * count
        assert store.check(read_data=True).problems == ()


def pairs(told: list[str]) -> list[tuple[str, int]]:
    return [(line.split("/")[0], int(line.split("/")[1])) for line in told]


@ENGINE
def test_processes_that_add_and_append_lose_nothing_and_do_nothing_twice(
    engine: str, memory_folder: Path
) -> None:
    count = 40 if engine == "sqlite" or SOAK else 10
    with ENGINES[engine](memory_folder / "store") as store:
        state = Versioned(store, mergers=RULES)
        state.update(n=0, log=[])
        state.commit()
    told = together("add", engine, memory_folder / "store", 4, count)

    with ENGINES[engine](memory_folder / "store") as store:
        state = Versioned(store)
        assert state["n"] == len(told) == 4 * count
        assert Counter(state["log"]) == Counter(told)
        for number in range(4):
            mine = [one for one in state["log"] if one.startswith(f"p{number}/")]
            assert mine == [f"p{number}/{step}" for step in range(count)]  # In their order.
            own = state.namespace("agents").namespace(f"p{number}")["own"]
            assert own == [*messages(50), *range(count)]
        assert store.check(read_data=True).problems == ()


def said_until_killed(worker: subprocess.Popen[str], count: int) -> list[list[str]]:
    """What a worker said until it was killed, after so many lines."""
    with worker:
        begin(worker)
        return [line.split() for line in lines_until_killed(worker, count)]


@ENGINE
def test_a_killed_writer_loses_nothing_that_was_acknowledged(
    engine: str, memory_folder: Path
) -> None:
    choose, folder = random.Random(2026), memory_folder / "store"
    told: dict[str, str] = {}
    for number in range(ROUNDS if engine == "sqlite" or SOAK else 4):
        whole = said_until_killed(start("write", engine, folder, number), choose.randrange(2, 40))
        told.update({count: hash for count, hash in whole if count != "try"})
        tried = max((int(count) for word, count in whole if word == "try"), default=0)
        with ENGINES[engine](folder) as store:
            state = Versioned(store)
            newest = max(map(int, told), default=0)
            if state.commit_hash is None:
                assert newest == 0
                continue
            assert int(shown(state)) in {newest, tried}
            assert set(told.values()) <= {one.id.hex() for one in state.history()}
            for count, hash in choose.sample(sorted(told.items()), min(5, len(told))):
                assert shown(state.checkout(hash)) == count
            assert store.check(read_data=number % 5 == 0).problems == ()

    assert len(told) > 10
