"""The state cache of threads, where a thread goes back in time."""

from __future__ import annotations

from holdfast import MemoryStore
from holdfast.threads import ThreadCheckpointer

CONFIG = {"thread_id": "t"}


def test_a_rollback_brings_back_nothing_that_was_cached_before_a_later_put() -> None:
    threads: ThreadCheckpointer[str] = ThreadCheckpointer(MemoryStore())
    threads.put_state(CONFIG, "first")
    timeline = threads.timeline(CONFIG)
    first = timeline.head
    threads.put_state_cache(CONFIG, "on the way to the second")
    on_the_way = threads.get_state_cache(CONFIG)
    threads.put_state(CONFIG, "second")
    assert first is not None
    timeline.rollback(to_checkpoint_id=first.id)

    assert on_the_way == "on the way to the second"
    assert threads.get_state(CONFIG) == "first"
    assert threads.get_state_cache(CONFIG) is None
