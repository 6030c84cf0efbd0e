"""Processes that the tests of stores in folders start, and kill.

    python -m tests.store.workers ENGINE share FOLDER NAME THREADS LAST
    python -m tests.store.workers ENGINE write FOLDER SEED
    python -m tests.store.workers ENGINE collect FOLDER

The engine is the name of its class. Each says `ready`, and begins when a line comes in.
"""

from __future__ import annotations

import os
import random
import sys
import threading

from holdfast.errors import RefMoved
from holdfast.store import FileStore, Move, SqliteStore
from holdfast.testing._stores._base import MAIN, SPACE, value
from holdfast.tree import Kind, make_object

BIG = 300_000
ENGINES: dict[str, type[FileStore | SqliteStore]] = {
    engine.__name__: engine for engine in (FileStore, SqliteStore)
}


def share(store: FileStore | SqliteStore, name: str, threads: str, last: str) -> None:
    """Move one ref together with others, until the space has its last operation."""
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


def write(store: FileStore | SqliteStore, seed: str) -> None:
    """Commit version after version, and say each when it is acknowledged."""
    choose = random.Random(int(seed))
    ref = store.ref(SPACE, MAIN)
    before = None if ref is None else ref.target
    payload = b"" if before is None else store.read([before])[0].payload
    say("ready")
    sys.stdin.readline()
    while True:
        size = BIG if choose.random() < 0.1 else choose.randrange(3000)
        payload = payload[-2000:] + choose.randbytes(size)
        one = make_object(Kind.CHUNK, payload, before)
        done = store.commit(SPACE, [one], moves=[Move(MAIN, before, one.id)])
        say(f"{done.sequence} {one.id.hex()}")
        before = one.id


def collect(store: FileStore | SqliteStore) -> None:
    """Collect again and again, and say how many objects went."""
    say("ready")
    sys.stdin.readline()
    while True:
        say(str(store.gc(recent=1).freed))


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())  # At once, and whole.


if __name__ == "__main__":
    engine, task, folder, *rest = sys.argv[1:]
    opened = ENGINES[engine](folder)
    if task == "share":
        share(opened, *rest)
    elif task == "write":
        write(opened, *rest)
    else:
        collect(opened)
