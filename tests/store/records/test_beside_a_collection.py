"""What one collection has marked, and not yet looked at again, is there for everybody else."""

from __future__ import annotations

from ropewalk.store import KeyValueStore, Move
from ropewalk.testing.helpers import MAIN, SPACE
from ropewalk.tree import TreeWriter
from tests.store.key_values import KeptKV
from tests.store.manifests import manifest


def test_neither_check_nor_another_collection_misses_what_is_marked() -> None:
    with KeyValueStore(KeptKV({})) as store:
        shared = TreeWriter().write("content").objects[0]
        head = manifest([shared.id])
        store.commit(SPACE, [shared], share=True)
        store.commit(SPACE, [head], [shared.id], [Move(MAIN, None, head.id)])
        store._shared.mark([shared.id])

        assert store.check(read_data=True).problems == ()
        store.gc(recent=0)
        assert store.reader(SPACE)([shared.id]) == [shared]
