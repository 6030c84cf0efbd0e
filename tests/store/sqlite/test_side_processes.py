"""Several processes share the file beside an embedded store; killing them harms nothing."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from ropewalk.store import SqliteStore
from ropewalk.store.engine import Within
from ropewalk.testing.helpers import lines_until_killed
from tests.conftest import SOAK
from tests.store.side_workers import SCOPE

ROOT = Path(__file__).parents[3]
ROUNDS = 100 if SOAK else 8


def start(folder: Path, last: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.store.side_workers", str(folder), str(last)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def numbers(lines: list[str]) -> list[int]:
    """The numbers that a worker brought forward, among what it said."""
    return [int(line) for line in lines if line.isdigit()]


def begin(folder: Path) -> Path:
    with SqliteStore(folder, durability="relaxed") as store:
        assert store.text_index().apply(SCOPE, None, b"0", [])
    return folder


def expect_all(folder: Path, last: int) -> None:
    """The index is at a number, and every position before it is there once."""
    with SqliteStore(folder, durability="relaxed") as store:
        index, state = store.text_index(), b"%d" % last

        assert index.state(SCOPE) == state
        assert index.find(SCOPE, state, ["word"], Within(last + 1)) == list(range(last))
        for number in range(0, last, 7):
            assert index.find(SCOPE, state, [f"own{number}x"], Within(9)) == [number]


def test_processes_bring_one_index_forward_together(tmp_path: Path) -> None:
    folder = begin(tmp_path / "store")
    workers = [start(folder, 200) for _ in range(3)]
    said = [number for one in workers for number in numbers(one.communicate()[0].splitlines())]

    assert sorted(said) == list(range(200))
    expect_all(folder, 200)


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_a_process_that_is_killed_leaves_an_index_that_is_whole(tmp_path: Path, seed: int) -> None:
    folder = begin(tmp_path / "store")
    first, second = start(folder, 100_000), start(folder, 150)
    with first:
        first_said = numbers(lines_until_killed(first, random.Random(seed).randrange(2, 90)))
    second_said = numbers(second.communicate()[0].splitlines())
    third = numbers(start(folder, 150).communicate()[0].splitlines())
    with SqliteStore(folder, durability="relaxed") as store:
        reached = int(store.text_index().state(SCOPE) or 0)

    assert max([*first_said, *second_said, *third], default=0) < reached
    assert reached >= 150
    expect_all(folder, reached)
