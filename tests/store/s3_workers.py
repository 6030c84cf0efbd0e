"""Processes that the tests of stores in a bucket start, and kill.

    python -m tests.store.s3_workers URL share NAME THREADS LAST
    python -m tests.store.s3_workers URL write SEED
    python -m tests.store.s3_workers URL collect
    python -m tests.store.s3_workers URL insist NAME
    python -m tests.store.s3_workers URL struggle NAME SEED
    python -m tests.store.s3_workers URL tidy

The first three are those of `tests.store.workers`. Each says `ready`, and begins when a line
comes in.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable
from typing import TypeVar

from ropewalk.errors import Conflict, Unavailable
from ropewalk.store import Move, S3Store
from ropewalk.testing.helpers import SPACE
from ropewalk.tree import Kind, make_object
from tests.store import workers
from tests.store.workers import say

T = TypeVar("T")


def insist(store: S3Store, name: str) -> None:
    """Commit version after version, and send again what got no answer."""
    ref = f"branch/{name}"
    before = None
    say("ready")
    sys.stdin.readline()
    number = 0
    while True:
        number += 1
        one = make_object(Kind.CHUNK, f"{name} {number} ".encode() + os.urandom(200))
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


def struggle(store: S3Store, name: str, seed: str) -> None:
    """Commit what is small, large and shared, and send again what got no answer."""
    ref, choose = f"branch/{name}", random.Random(int(seed))
    say("ready")
    sys.stdin.readline()
    known = patient(lambda: store.ref(SPACE, ref))
    before, number = (None, 0) if known is None else (known.target, known.sequence)
    while True:
        number += 1
        size = choose.choice([30, 300, 300, 3000, 12_000, 40_000])
        text = f"{name} {number} ".encode()
        one = make_object(Kind.CHUNK, text + choose.randbytes(size))
        moves, write_id = [Move(ref, before, one.id)], f"{name} {seed} {number}"
        shared = size > 30_000 or choose.random() < 0.1
        done = patient(
            lambda one=one, moves=moves, write_id=write_id, shared=shared: store.commit(  # type: ignore[misc]
                SPACE, [one], moves=moves, write_id=write_id, share=shared
            )
        )
        say(f"{done.sequence} {one.id.hex()}")
        before = one.id


def tidy(store: S3Store) -> None:
    """Collect again and again."""
    say("ready")
    sys.stdin.readline()
    while True:
        say(str(patient(lambda: store.gc(recent=10_000)).freed))


def patient(call: Callable[[], T]) -> T:
    """Ask until there is an answer."""
    while True:
        try:
            return call()
        except (Unavailable, Conflict):
            time.sleep(0.02)


if __name__ == "__main__":
    url, task, *rest = sys.argv[1:]
    tasks = {
        "share": workers.share,
        "write": workers.write,
        "collect": workers.collect,
        "insist": insist,
        "struggle": struggle,
        "tidy": tidy,
    }
    # Others are not asked to work while there is no server.
    timeout = 3 if task in ("insist", "struggle", "tidy") else 60
    S3Store._tail_bytes = 16 * 1024 if task == "struggle" else S3Store._tail_bytes
    tasks[task](patient(lambda: S3Store(url, timeout=timeout)), *rest)  # type: ignore[operator]
