"""Processes that the tests of stores in a bucket start, and kill.

    python -m tests.store.s3_workers URL share NAME THREADS LAST
    python -m tests.store.s3_workers URL write SEED
    python -m tests.store.s3_workers URL collect
    python -m tests.store.s3_workers URL insist NAME

The first three are those of `tests.store.workers`. Each says `ready`, and begins when a line
comes in.
"""

from __future__ import annotations

import os
import sys
import time

from ropewalk.errors import Unavailable
from ropewalk.store import Move, S3Store
from ropewalk.testing._stores._base import SPACE
from ropewalk.tree import Kind, make_object
from tests.store import workers
from tests.store.workers import say


def insist(store: S3Store, name: str) -> None:
    """Commit version after version, and send again what got no answer."""
    ref = f"branch/{name}"
    before = None
    say("ready")
    sys.stdin.readline()
    number = 0
    while True:
        number += 1
        one = make_object(Kind.CHUNK, f"{name} {number} ".encode() + os.urandom(200), before)
        while True:
            try:
                done = store.commit(
                    SPACE, [one], moves=[Move(ref, before, one.id)], write_id=f"{name} {number}"
                )
            except Unavailable:
                time.sleep(0.05)
            else:
                break
        say(f"{done.sequence} {one.id.hex()}")
        before = one.id


if __name__ == "__main__":
    url, task, *rest = sys.argv[1:]
    tasks = {
        "share": workers.share,
        "write": workers.write,
        "collect": workers.collect,
        "insist": insist,
    }
    # Only one that insists is asked to work while there is no server.
    tasks[task](S3Store(url, timeout=3 if task == "insist" else 60), *rest)  # type: ignore[operator]
