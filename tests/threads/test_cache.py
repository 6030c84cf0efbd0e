"""The state cache of threads, where a thread goes back in time."""

from __future__ import annotations

import pytest

from ropewalk import MemoryStore
from ropewalk.threads import ThreadCheckpointer

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


@pytest.mark.parametrize("kept", [b"", b"\xc1\xc1", b"\x93\x01"])
def test_a_cached_state_that_is_damaged_is_lost(kept: bytes) -> None:
    threads: ThreadCheckpointer[str] = ThreadCheckpointer(MemoryStore())
    threads.put_state_cache(CONFIG, "state")
    scratch = threads.store.scratch()
    (key,) = scratch.keys()
    scratch.put(key, (scratch.get(key) or b"")[:8] + kept)

    assert threads.get_state_cache(CONFIG) is None
