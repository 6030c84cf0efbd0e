"""A collection ends, however fast others write meanwhile."""

from __future__ import annotations

from ropewalk.store import MemoryStore, Move
from ropewalk.store.model import Operation
from ropewalk.testing.helpers import MAIN, SPACE, value
from ropewalk.tree import ObjectId

ENOUGH = 50


class Busy(MemoryStore):
    """Somebody commits whenever the log is read, and never rests."""

    busy = True
    head: ObjectId | None = None
    commits = 0

    def commit_next(self) -> None:
        self.commits += 1
        assert self.commits < ENOUGH, "the collection runs after the writer for ever"
        one = value(f"version {self.commits}".encode())
        self.commit(SPACE, [one], moves=[Move(MAIN, self.head, one.id)])
        self.head = one.id

    def _operations(self, space: str, after: int, limit: int) -> list[Operation]:
        if self.busy:
            self.commit_next()
        return super()._operations(space, after, limit)


def test_a_collection_does_not_run_after_a_writer_for_ever() -> None:
    with Busy() as store:
        store.commit_next()
        lost = value(b"nobody leads here")
        store.commit(SPACE, [lost])

        freed = store.gc(recent=0).freed
        store.busy = False

        assert freed == 1
        assert store.check().ok
