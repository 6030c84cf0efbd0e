"""Several processes share the file beside an embedded store; killing them harms nothing."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from ropewalk.store import SqliteStore
from ropewalk.store.engine import Within
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


def numbers(lines: str) -> list[int]:
    # The last line of who was killed may be cut.
    return [int(line) for line in lines.splitlines(keepends=True) if line[:-1].isdigit()]


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
    said = [number for one in workers for number in numbers(one.communicate()[0])]

    assert sorted(said) == list(range(200))
    expect_all(folder, 200)


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_a_process_that_is_killed_leaves_an_index_that_is_whole(tmp_path: Path, seed: int) -> None:
    folder = begin(tmp_path / "store")
    first, second = start(folder, 100_000), start(folder, 150)
    assert first.stdout is not None
    for _ in range(random.Random(seed).randrange(2, 90)):
        first.stdout.readline()
    first.kill()
    rest = first.communicate()[0]
    second_said = numbers(second.communicate()[0])
    third = numbers(start(folder, 150).communicate()[0])
    with SqliteStore(folder, durability="relaxed") as store:
        reached = int(store.text_index().state(SCOPE) or 0)

    assert max([*second_said, *third, *numbers(rest)], default=0) < reached
    assert reached >= 150
    expect_all(folder, reached)
