"""Processes that the tests of the embedded store start, and kill.

    python -m tests.store.sqlite_workers share FOLDER NAME THREADS LAST
    python -m tests.store.sqlite_workers write FOLDER SEED

Each says `ready`, and begins when a line comes in.
"""

from __future__ import annotations

import os
import random
import sys
import threading

from holdfast.errors import RefMoved
from holdfast.store import Move, SqliteStore
from holdfast.testing._stores._base import MAIN, SPACE, value

BIG = 300_000


def share(folder: str, name: str, threads: str, last: str) -> None:
    """Move one ref together with others, until the space has its last operation."""
    store = SqliteStore(folder)
    say("ready")
    sys.stdin.readline()

    def work(number: int) -> None:
        while store.view(SPACE).sequence < int(last):
            ref = store.ref(SPACE, MAIN)
            before = None if ref is None else ref.target
            one = value(f"{name} {number} ".encode() + os.urandom(300), before)
            try:
                done = store.commit(
                    SPACE, [one], moves=[Move(MAIN, before, one.id)], operation={"by": name}
                )
            except RefMoved:
                continue
            say(f"{done.sequence} {one.id.hex()}")

    workers = [threading.Thread(target=work, args=(number,)) for number in range(int(threads))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    store.close()


def write(folder: str, seed: str) -> None:
    """Commit version after version, and say each when it is acknowledged."""
    choose = random.Random(int(seed))
    store = SqliteStore(folder)
    ref = store.ref(SPACE, MAIN)
    before = None if ref is None else ref.target
    payload = b"" if before is None else store.read([before])[0].payload
    say("ready")
    sys.stdin.readline()
    while True:
        size = BIG if choose.random() < 0.1 else choose.randrange(3000)
        payload = payload[-2000:] + choose.randbytes(size)
        one = value(payload, before)
        done = store.commit(SPACE, [one], moves=[Move(MAIN, before, one.id)])
        say(f"{done.sequence} {one.id.hex()}")
        before = one.id


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())  # At once, and whole.


if __name__ == "__main__":
    if sys.argv[1] == "share":
        share(*sys.argv[2:])
    else:
        write(*sys.argv[2:])
