"""Processes that the tests of migration start, measure, and kill.

    python -m tests.store.migration_workers fill ENGINE FOLDER MEGABYTES
    python -m tests.store.migration_workers migrate ENGINE FOLDER ENGINE FOLDER

`migrate` says after each page how many objects are dealt with, and at the end how many
it copied and by how many kilobytes the process has grown.
"""

from __future__ import annotations

import random
import resource
import sys
from collections.abc import Callable

from ropewalk.store import FileStore, Move, SqliteStore, Store, migrate
from ropewalk.testing.helpers import MAIN, SPACE
from ropewalk.tree import TreeWriter, make_commit

ENGINES: dict[str, Callable[[str], Store]] = {
    "sqlite": lambda folder: SqliteStore(folder, durability="relaxed"),
    "files": lambda folder: FileStore(folder, durability="relaxed"),
}
MEGABYTE = 1 << 20


def fill(engine: str, folder: str, megabytes: str) -> None:
    """Versions of a state with a document that is new each time, and notes that grow."""
    choose = random.Random(7)
    writer = TreeWriter()
    state: dict[str, object] = {"notes": []}
    notes: list[str] = []
    before, generation = None, 0
    with ENGINES[engine](folder) as store:
        for _ in range(int(megabytes) // 2):
            notes += [choose.randbytes(100).hex() for _ in range(5)]
            state = {"document": choose.randbytes(2 * MEGABYTE), "notes": notes}
            written = writer.write(state)
            generation += 1
            parents = () if before is None else (before,)
            commit, made = make_commit(written.root, parents, generation=generation)
            needs = [*written.needs, *parents]
            store.commit(SPACE, [*written.objects, made], needs, [Move(MAIN, before, commit.id)])
            writer.accept(written)
            before = commit.id


def bring(engine: str, folder: str, other: str, target: str) -> None:
    """Migrate, saying how far it is."""
    with ENGINES[engine](folder) as one, ENGINES[other](target) as two:
        one.view(SPACE), two.view(SPACE)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        done = migrate(one, two, progress=say)
        say("done", done.objects, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    work: dict[str, Callable[..., None]] = {"fill": fill, "migrate": bring}
    work[sys.argv[1]](*sys.argv[2:])
