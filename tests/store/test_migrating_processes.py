"""A large migration: bounded memory, killed in the middle, and resumed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ropewalk.store import Store
from ropewalk.testing.helpers import SPACE
from tests.conftest import SOAK
from tests.store.migration_workers import ENGINES

ROOT = Path(__file__).parent.parent.parent
WORKER = [sys.executable, "-m", "tests.store.migration_workers"]
MEGABYTES = 1024 if SOAK else 64
MOST_KILOBYTES = 150_000
KILLS = 3 if SOAK else 2
PAIRS = [(one, other) for one in ENGINES for other in ENGINES if SOAK or one != other]


def start(*arguments: object) -> subprocess.Popen[str]:
    command = [*WORKER, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def killed(worker: subprocess.Popen[str], pages: int) -> int:
    """Kill a worker once it has dealt with so many pages; how many objects these had."""
    assert worker.stdout is not None
    said = "copying 0"
    for _ in range(pages):
        while not (said := worker.stdout.readline()).startswith("copying"):
            pass
    worker.kill()
    worker.wait()
    worker.stdout.close()
    what, number = said.split()
    assert what == "copying"
    return int(number)


def finished(worker: subprocess.Popen[str]) -> tuple[int, int]:
    """How many objects a worker copied, and how many kilobytes it took for that."""
    output = worker.communicate()[0]
    assert worker.returncode == 0
    what, objects, kilobytes = output.splitlines()[-1].split()
    assert what == "done"
    return int(objects), int(kilobytes)


def refs(store: Store) -> list[tuple[str, bytes]]:
    return [(ref.name, ref.target) for ref in store.refs(SPACE)]


@pytest.mark.parametrize("pair", PAIRS, ids="-to-".join)
def test_a_large_store_is_migrated_in_little_memory_although_killed(
    pair: tuple[str, str], tmp_path: Path
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    subprocess.run([*WORKER, "fill", pair[0], source, str(MEGABYTES)], cwd=ROOT, check=True)
    stores = pair[0], source, pair[1], target
    pages = MEGABYTES // 8  # More pages come: one has a few megabytes.
    for kill in range(1, KILLS + 1):
        assert killed(start("migrate", *stores), kill * pages // KILLS) > 0

    objects, kilobytes = finished(start("migrate", *stores))

    with ENGINES[pair[0]](str(source)) as one, ENGINES[pair[1]](str(target)) as two:
        every = sum(1 for _ in one.scan())
        assert kilobytes < MOST_KILOBYTES
        assert 0 < objects < every
        assert refs(two) == refs(one)
        assert [op.write_id for op in two.operations(SPACE)] == [
            op.write_id for op in one.operations(SPACE)
        ]
        report = two.check(read_data=True)
        assert report.problems == () and report.objects >= every
