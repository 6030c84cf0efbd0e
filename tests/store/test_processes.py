"""Stores in folders among processes: nothing is lost, and killing harms nothing."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import TypeAlias

import pytest

from ropewalk.store import FileStore, SqliteStore, Store
from ropewalk.testing.helpers import MAIN, SPACE, lines_until_killed
from tests.conftest import SOAK
from tests.store.workers import ENGINES

ROOT = Path(__file__).parent.parent.parent
PROCESSES, THREADS, TOTAL = 4, 2, 600
ROUNDS = 200 if SOAK else 10

Engine: TypeAlias = type[FileStore | SqliteStore]


@pytest.fixture(params=list(ENGINES.values()), ids=list(ENGINES))
def engine(request: pytest.FixtureRequest) -> Engine:
    """Each of the engines in turn."""
    chosen: Engine = request.param
    return chosen


def start(engine: Engine | str, *arguments: object) -> subprocess.Popen[str]:
    """A worker that is ready to begin."""
    name = engine if isinstance(engine, str) else engine.__name__
    worker = subprocess.Popen(
        [sys.executable, "-m", "tests.store.workers", name, *map(str, arguments)],
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


def test_processes_that_share_a_ref_lose_nothing(engine: Engine, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    engine(folder).close()
    names = [f"process {number}" for number in range(PROCESSES)]
    workers = [start(engine, "share", folder, name, THREADS, TOTAL) for name in names]

    for worker in workers:
        begin(worker)
    outputs = [worker.communicate()[0] for worker in workers]

    assert [worker.returncode for worker in workers] == [0] * PROCESSES
    told = [acknowledged(output) for output in outputs]
    with engine(folder) as store:
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
        store.reader(SPACE)([operation.moves[0].target or b"" for operation in operations])


def test_a_killed_writer_takes_nothing_that_was_acknowledged(
    engine: Engine, tmp_path: Path
) -> None:
    folder, choose = tmp_path / "store", random.Random(2024)
    told: dict[int, bytes] = {}
    for round_number in range(ROUNDS):
        worker = start(engine, "write", folder, round_number)
        begin(worker)
        told |= kill_after(worker, choose.randrange(1, 40))

        with engine(folder) as store:
            check(store, told)
        if engine is SqliteStore:
            check_database(folder / "store.db")
    assert len(told) >= ROUNDS


def test_a_killed_collection_beside_a_killed_writer_harms_nothing(
    engine: Engine, tmp_path: Path
) -> None:
    folder, choose, freed = tmp_path / "store", random.Random(2025), 0
    engine(folder).close()
    for round_number in range(ROUNDS // 2):
        writer = start(engine, "write", folder, round_number)
        collector = start(engine, "collect", folder)
        begin(writer)
        lines = "".join(lines_of(writer, 25))
        begin(collector)
        freed += sum(map(int, lines_of(collector, choose.randrange(1, 5))))
        workers = [writer, collector]
        choose.shuffle(workers)
        for worker in workers:
            worker.kill()
        told = acknowledged(lines + rest_of(writer))
        rest_of(collector)

        with engine(folder) as store:
            assert store.check(read_data=True).problems == ()
            head = store.ref(SPACE, MAIN)
            assert head is not None and head.sequence >= max(told)
            assert head.target == told.get(head.sequence, head.target)
    assert freed > 0


def lines_of(worker: subprocess.Popen[str], count: int) -> list[str]:
    assert worker.stdout is not None
    return [worker.stdout.readline() for _ in range(count)]


def rest_of(worker: subprocess.Popen[str]) -> str:
    """What an ended worker said beside the lines that were read."""
    assert worker.stdout is not None
    rest = worker.stdout.read()  # Not `communicate`, which leaves out what was read ahead.
    worker.communicate()
    return rest


def test_killed_threads_that_share_transactions_lose_nothing(
    engine: Engine, tmp_path: Path
) -> None:
    folder, choose = tmp_path / "store", random.Random(7)
    told: dict[int, bytes] = {}
    for _ in range(ROUNDS // 2):
        worker = start(engine, "together", folder, 6)
        begin(worker)
        told |= kill_after(worker, choose.randrange(6, 80))

        with engine(folder) as store:
            check_log(store, told)
        if engine is SqliteStore:
            check_database(folder / "store.db")
    assert len(told) >= 6 * ROUNDS // 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_children_that_end_leave_their_parent_alone(engine: Engine, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    worker = start(engine, "fork", folder, 20)
    begin(worker)
    told = acknowledged(worker.communicate()[0])

    assert worker.returncode == 0
    with engine(folder) as store:
        assert len(told) == len(store.operations(SPACE, limit=10**6)) >= 3
        check_log(store, told)
    if engine is SqliteStore:
        check_database(folder / "store.db")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_child_that_ends_does_not_take_back_what_its_parent_is_writing(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    worker = start(SqliteStore, "fork_inside", folder, 20_000)
    begin(worker)
    said = worker.communicate()[0]

    assert said == "20000\n"
    check_database(folder / "store.db")


def kill_after(worker: subprocess.Popen[str], commits: int) -> dict[int, bytes]:
    """Let a worker commit so often, then kill it wherever it is; what it was told."""
    with worker:
        return acknowledged("\n".join(lines_until_killed(worker, commits)))


def check_database(path: Path) -> None:
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    db.close()


def check(store: Store, told: dict[int, bytes]) -> None:
    targets = check_log(store, told)
    head = store.ref(SPACE, MAIN)
    assert head is not None and head.target == targets[len(targets)]


def check_log(store: Store, told: dict[int, bytes]) -> dict[int, bytes | None]:
    """What is in the log, after everything that somebody was told was found there."""
    targets = {one.sequence: one.moves[0].target for one in store.operations(SPACE, limit=10**6)}
    assert {sequence: targets[sequence] for sequence in told} == told
    assert sorted(targets) == list(range(1, len(targets) + 1))
    store.reader(SPACE)([target for target in targets.values() if target is not None])
    assert store.missing(list(told.values()), SPACE) == []
    return targets
