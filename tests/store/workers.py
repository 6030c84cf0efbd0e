"""Processes that the tests of stores in folders start, and kill.

    python -m tests.store.workers ENGINE share FOLDER NAME THREADS LAST
    python -m tests.store.workers ENGINE write FOLDER SEED
    python -m tests.store.workers ENGINE collect FOLDER
    python -m tests.store.workers ENGINE together FOLDER THREADS
    python -m tests.store.workers ENGINE fork FOLDER CHILDREN
    python -m tests.store.workers ENGINE fork_inside FOLDER ROWS

The engine is the name of its class, or `redis` for the example of the documentation. For
that and for `RedisStore`, the folder is the address of a server. Each says `ready`, and
begins when a line comes in.
"""

from __future__ import annotations

import os
import random
import sqlite3
import sys
import threading
from collections.abc import Callable

from ropewalk.errors import RefMoved
from ropewalk.store import FileStore, KeyValueStore, Move, RedisStore, SqliteStore, Store
from ropewalk.testing.helpers import MAIN, SPACE, value
from ropewalk.tree import Kind, make_object
from tests.store.redis_example import redis_store

BIG = 300_000
ENGINES: dict[str, type[FileStore | SqliteStore]] = {
    engine.__name__: engine for engine in (FileStore, SqliteStore)
}


def open_engine(engine: str, place: str) -> Store:
    """The store that a worker works on."""
    if engine == "redis":
        return KeyValueStore(redis_store(place))
    return RedisStore(place) if engine == "RedisStore" else ENGINES[engine](place)


def share(store: Store, name: str, threads: str, last: str) -> None:
    """Move one ref together with others, until the space has its last operation."""
    say("ready")
    sys.stdin.readline()

    def move(number: int) -> None:
        while True:
            ref = store.ref(SPACE, MAIN)
            before = None if ref is None else ref.target
            one = value(f"{name} {number} ".encode() + os.urandom(300))
            try:
                done = store.commit(
                    SPACE, [one], moves=[Move(MAIN, before, one.id)], operation={"by": name}
                )
            except RefMoved:
                continue
            say(f"{done.sequence} {one.id.hex()}")
            return

    def work(number: int) -> None:
        while store.view(SPACE).sequence < int(last):
            move(number)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(int(threads))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    store.close()


def write(store: Store, seed: str) -> None:
    """Commit version after version, and say each when it is acknowledged."""
    choose = random.Random(int(seed))
    ref = store.ref(SPACE, MAIN)
    before = None if ref is None else ref.target
    payload = b"" if before is None else store.reader(SPACE)([before])[0].payload
    say("ready")
    sys.stdin.readline()
    while True:
        size = BIG if choose.random() < 0.1 else choose.randrange(3000)
        payload = payload[-2000:] + choose.randbytes(size)
        one = make_object(Kind.CHUNK, payload)
        done = store.commit(SPACE, [one], moves=[Move(MAIN, before, one.id)])
        say(f"{done.sequence} {one.id.hex()}")
        before = one.id


def collect(store: Store) -> None:
    """Collect again and again, and say how many objects went."""
    say("ready")
    sys.stdin.readline()
    while True:
        say(str(store.gc(recent=1).freed))


def together(store: Store, threads: str) -> None:
    """Commit in several threads at once, each to a ref of its own, without end."""
    say("ready")
    sys.stdin.readline()

    def work(name: str) -> None:
        ref = store.ref(SPACE, name)
        before = None if ref is None else ref.target
        while True:
            one = value(name.encode() + os.urandom(300))
            done = store.commit(SPACE, [one], moves=[Move(name, before, one.id)])
            say(f"{done.sequence} {one.id.hex()}")
            before = one.id

    for number in range(int(threads)):
        threading.Thread(target=work, args=(f"branch/{number}",)).start()


def fork(store: Store, children: str) -> None:
    """Commit in threads while children come and go, each ending in another way."""
    say("ready")
    sys.stdin.readline()
    stop = threading.Event()

    def work(name: str) -> None:
        before = None
        while not stop.is_set():
            one = value(name.encode() + os.urandom(300))
            done = store.commit(SPACE, [one], moves=[Move(name, before, one.id)])
            say(f"{done.sequence} {one.id.hex()}")
            before = one.id

    workers = [threading.Thread(target=work, args=(f"branch/{n}",)) for n in range(3)]
    for worker in workers:
        worker.start()
    for number in range(int(children)):
        child = os.fork()
        if child == 0:
            if number % 2:
                os._exit(0)
            sys.exit(0)  # Everything that was inherited is let go of.
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    stop.set()
    for worker in workers:
        worker.join()
    store.close()


def fork_inside(store: Store, rows: str) -> None:
    """Let a child end while a transaction is open, of which SQLite has written a part."""
    assert isinstance(store, SqliteStore)
    half, go_on = threading.Event(), threading.Event()

    def work(db: sqlite3.Connection) -> None:
        db.execute("PRAGMA cache_size = 10")
        for _ in range(int(rows)):
            db.execute("INSERT INTO named VALUES (?, 1)", (os.urandom(32),))
        half.set()
        go_on.wait()

    say("ready")
    sys.stdin.readline()
    writer = threading.Thread(target=store._database.write, args=(work,))
    writer.start()
    half.wait()
    child = os.fork()
    if child == 0:
        sys.exit(0)
    os.waitpid(child, 0)
    go_on.set()
    writer.join()
    with sqlite3.connect(store.path / "store.db") as other:
        say(str(other.execute("SELECT count(*) FROM named").fetchone()[0]))
    other.close()
    store.close()


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())  # At once, and whole.


if __name__ == "__main__":
    engine, task, folder, *rest = sys.argv[1:]
    opened = open_engine(engine, folder)
    tasks: dict[str, Callable[..., None]] = {
        "share": share,
        "write": write,
        "collect": collect,
        "together": together,
        "fork": fork,
        "fork_inside": fork_inside,
    }
    tasks[task](opened, *rest)
