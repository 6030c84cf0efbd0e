"""Processes that the tests of history start, and kill.

    python -m tests.history.workers share FOLDER NAME THREADS LAST
    python -m tests.history.workers contend FOLDER NAME THREADS LAST
    python -m tests.history.workers litter FOLDER NAME
    python -m tests.history.workers collect FOLDER
    python -m tests.history.workers write FOLDER DURABILITY SEED

Each says `ready`, and begins when a line comes in. Then it says what was acknowledged.
`litter` goes on until another line comes in.
"""

from __future__ import annotations

import os
import random
import select
import sys
import threading
from collections.abc import Callable
from typing import Any, Literal

from ropewalk.errors import MergeConflict
from ropewalk.history import Branch, History
from ropewalk.store import SqliteStore, space_name

SPACE = space_name("test", "shared")
MERGERS = {"count": "add", "log": "append"}
START: dict[str, Any] = {"count": 0, "log": [], "own": {}, "last": ""}


def opened(folder: str, durability: Literal["full", "relaxed"] = "full") -> History:
    """The history that all workers share."""
    store = SqliteStore(folder, durability=durability)
    History(store, space_name("test", f"of {os.getpid()}")).open().commit({})  # All is loaded now.
    history = History(store, SPACE)
    say("ready")
    sys.stdin.readline()
    return history


def share(folder: str, name: str, threads: str, last: str) -> None:
    """Change keys of its own, a counter and a list, until there are so many operations."""
    history = opened(folder)

    def step(handle: Branch, mine: str, number: int) -> str:
        value = handle.read()
        value["own"][mine] = number
        value["count"] += 1
        value["log"].append(f"{mine}:{number}")
        return handle.commit(value, mergers=MERGERS, agent=name).id.hex()

    work_together(history, name, int(threads), int(last), step)


def contend(folder: str, name: str, threads: str, last: str) -> None:
    """Change one key that all others change too; read and try again after a conflict."""
    history = opened(folder)

    def step(handle: Branch, mine: str, number: int) -> str:
        while True:
            value = handle.read()
            value["count"] += 1
            value["last"] = f"{mine}:{number}"
            try:
                return handle.commit(value, agent=name).id.hex()
            except MergeConflict:
                say("conflict")

    work_together(history, name, int(threads), int(last), step)


def work_together(
    history: History,
    name: str,
    threads: int,
    last: int,
    step: Callable[[Branch, str, int], str],
) -> None:
    """Threads with a handle each, until the space has its last operation."""

    def work(thread: int) -> None:
        handle, mine, number = history.open(), f"{name}.{thread}", 0
        while history.store.view(SPACE).sequence < last:
            number += 1
            say(f"{mine}:{number} {step(handle, mine, number)}")

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    history.store.close()


def litter(folder: str, name: str) -> None:
    """Commit to the shared branch, and to branches of its own that it deletes."""
    history, choose = opened(folder), random.Random(name)
    handle = history.open()
    number = 0
    while not select.select([0], [], [], 0)[0]:
        number += 1
        value = handle.read()
        value["own"][name] = [number, choose.randbytes(choose.randrange(6000))]
        value["count"] += 1
        made = handle.commit(value, mergers=MERGERS)
        side = f"{name} {number}"
        history.create_branch(side, at=made)
        other = history.open(side)
        other.commit({**other.read(), "rubbish": choose.randbytes(5000)})
        history.delete_branch(side)
        say(f"{name}:{number} {made.id.hex()}")
    history.store.close()


def collect(folder: str) -> None:
    """Collect again and again, and say how much went each time."""
    history = opened(folder)
    while True:
        say(str(history.store.gc(recent=1).freed))


def write(folder: str, durability: Literal["full", "relaxed"], seed: str) -> None:
    """Commit version after version, and say each when it is acknowledged."""
    choose, history = random.Random(int(seed)), opened(folder, durability)
    handle = history.open()
    value: dict[str, Any] = {"count": 0, "log": []} if handle.head is None else handle.read()
    while True:
        value["count"] += 1
        size = 300_000 if choose.random() < 0.1 else choose.randrange(3000)
        value["log"] = [*value["log"][-5:], choose.randbytes(size)]
        made = handle.commit(value, metadata={"count": value["count"]})
        say(f"{value['count']} {made.id.hex()}")


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())  # At once, and whole.


if __name__ == "__main__":
    work: dict[str, Callable[..., None]] = {
        "share": share,
        "contend": contend,
        "litter": litter,
        "collect": collect,
        "write": write,
    }
    work[sys.argv[1]](*sys.argv[2:])
