"""The embedded store among processes: nothing is lost, nobody starves, killing harms nothing."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path

from holdfast.store import SqliteStore
from holdfast.testing._stores._base import MAIN, SPACE

ROOT = Path(__file__).parent.parent.parent
PROCESSES, THREADS, TOTAL = 4, 2, 600
ROUNDS = 10


def start(*arguments: object) -> subprocess.Popen[str]:
    """A worker that is ready to begin."""
    worker = subprocess.Popen(
        [sys.executable, "-m", "tests.store.sqlite_workers", *map(str, arguments)],
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


def acknowledged(lines: str) -> dict[int, bytes]:
    """What a worker was told is stored: the target of each operation."""
    pairs = (line.split() for line in lines.splitlines())
    return {int(sequence): bytes.fromhex(id) for sequence, id in pairs}


def test_processes_that_share_a_ref_lose_nothing_and_starve_nobody(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    SqliteStore(folder).close()
    names = [f"process {number}" for number in range(PROCESSES)]
    workers = [start("share", folder, name, THREADS, TOTAL) for name in names]

    for worker in workers:
        begin(worker)
    outputs = [worker.communicate()[0] for worker in workers]

    assert [worker.returncode for worker in workers] == [0] * PROCESSES
    told = [acknowledged(output) for output in outputs]
    with SqliteStore(folder) as store:
        operations = store.operations(SPACE, limit=10 * TOTAL)
        assert [one.sequence for one in operations] == list(range(1, len(operations) + 1))
        assert sum(map(len, told)) == len(operations) >= TOTAL
        before = None
        for operation in operations:
            (move,) = operation.moves
            assert move.expected == before
            by = names.index(str(operation.metadata["by"]))
            assert told[by][operation.sequence] == move.target
            before = move.target
        store.read([operation.moves[0].target or b"" for operation in operations])
    done = Counter(operation.metadata["by"] for operation in operations)
    assert 3 * min(done[name] for name in names) >= max(done.values())


def test_a_killed_writer_takes_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    folder, choose = tmp_path / "store", random.Random(2024)
    told: dict[int, bytes] = {}
    for round_number in range(ROUNDS):
        worker = start("write", folder, round_number)
        begin(worker)
        told |= kill_after(worker, choose.randrange(1, 40))

        with SqliteStore(folder) as store:
            check(store, told)
        with sqlite3.connect(folder / "store.db") as db:
            assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        db.close()
    assert len(told) >= ROUNDS


def kill_after(worker: subprocess.Popen[str], commits: int) -> dict[int, bytes]:
    """Let a worker commit so often, then kill it wherever it is; what it was told."""
    assert worker.stdout is not None
    lines = "".join(worker.stdout.readline() for _ in range(commits))
    worker.kill()
    lines += worker.communicate()[0]
    return acknowledged(lines)


def check(store: SqliteStore, told: dict[int, bytes]) -> None:
    targets = {one.sequence: one.moves[0].target for one in store.operations(SPACE)}
    assert {sequence: targets[sequence] for sequence in told} == told
    head = store.ref(SPACE, MAIN)
    assert head is not None and head.target == targets[len(targets)]
    store.read([target for target in targets.values() if target is not None])
    assert store.missing(list(told.values())) == []
