"""Processes that the tests of stores in Postgres start, and kill.

    python -m tests.store.postgres_workers TASK URL SCHEMA ARGUMENTS...

The tasks are those of `tests.store.workers`, and `branch URL SCHEMA NAME COUNT`.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import ropewalk
from ropewalk.errors import Unavailable
from ropewalk.store import Move, PostgresStore, Store
from ropewalk.testing.helpers import MAIN, SPACE, value
from tests.store.workers import collect, say, share, together
from tests.store.workers import write as write_chunks

ROOT = Path(__file__).parent.parent.parent


def write(store: Store, name: str) -> None:
    """Commit version after version, whatever the server does, and say each that is stored."""
    ref = store.ref(SPACE, MAIN)
    before = None if ref is None else ref.target
    say("ready")
    sys.stdin.readline()
    number = 0
    while True:
        number += 1
        one = value(f"{name} {number} ".encode() * 40)
        write_id = f"{name} {number}"
        while True:
            try:
                done = store.commit(
                    SPACE, [one], moves=[Move(MAIN, before, one.id)], write_id=write_id
                )
                break
            except Unavailable:
                continue  # The same write, until it is answered.
        say(f"{done.sequence} {one.id.hex()}")
        before = one.id


def branch(store: Store, name: str, count: str) -> None:
    """Add lines to a list on one branch that others add to at the same time."""
    state = ropewalk.Versioned(store, name="shared", mergers={"log": "append"})
    say("ready")
    sys.stdin.readline()
    for number in range(int(count)):
        state.refresh()
        state["log"].append(f"{name} {number}")
        state.commit()
        say(f"{number} {state.commit_hash}")


def start(*arguments: object) -> subprocess.Popen[str]:
    """A worker that is ready to begin."""
    return start_all([arguments])[0]


def start_all(calls: Iterable[Sequence[object]]) -> list[subprocess.Popen[str]]:
    """Workers that are all ready to begin."""
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.store.postgres_workers", *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for arguments in calls
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    return workers


if __name__ == "__main__":
    task, url, schema, *rest = sys.argv[1:]
    opened = PostgresStore(url, schema=schema, max_connections=4, timeout=10.0)
    tasks: dict[str, Callable[..., Any]] = {
        "branch": branch,
        "collect": collect,
        "share": share,
        "together": together,
        "write": write,
        "write_chunks": write_chunks,
    }
    tasks[task](opened, *rest)
