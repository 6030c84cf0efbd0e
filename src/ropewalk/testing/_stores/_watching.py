"""Watching: every operation, once, in order, soon."""

from __future__ import annotations

import threading
from queue import Queue

import pytest

from ropewalk.errors import StoreClosed
from ropewalk.store import Operation, Store
from ropewalk.testing._stores._base import Base
from ropewalk.testing.helpers import OTHER_SPACE, PATIENCE, SPACE, in_threads


class WatchContract(Base):
    """Waiting for operations."""

    def test_what_happened_before_is_seen(self, store: Store) -> None:
        done = [store.commit(SPACE) for _ in range(3)]

        assert list(store.watch(SPACE, timeout=0)) == done
        assert list(store.watch(SPACE, after=2, timeout=0)) == done[2:]
        assert list(store.watch(SPACE, after=3, timeout=0.01)) == []

    def test_a_watcher_is_woken_by_a_commit(self, store: Store, second: Store) -> None:
        seen: Queue[Operation] = Queue()
        watching = threading.Event()

        def watch() -> None:
            for operation in store.watch(SPACE, timeout=PATIENCE):
                seen.put(operation)
                watching.set()
                if operation.sequence == 4:
                    return

        thread = threading.Thread(target=watch)
        thread.start()
        second.commit(SPACE)
        assert watching.wait(PATIENCE)
        done = [seen.get(timeout=PATIENCE)]
        for _ in range(3):
            second.commit(OTHER_SPACE)
            done.append(second.commit(SPACE))
            assert seen.get(timeout=PATIENCE) == done[-1]
        thread.join(PATIENCE)

        assert not thread.is_alive()
        assert [one.sequence for one in done] == [1, 2, 3, 4]

    def test_watchers_see_everything_once_and_in_order(self, store: Store, second: Store) -> None:
        writers, each = 3, 15
        total = writers * each
        seen: list[list[int]] = [[], []]

        def work(number: int) -> None:
            if number >= writers:
                watcher = number - writers
                for operation in (store, second)[watcher].watch(SPACE, timeout=PATIENCE):
                    seen[watcher].append(operation.sequence)
                    if operation.sequence == total:
                        return
            else:
                for _ in range(each):
                    (store, second)[number % 2].commit(SPACE)

        in_threads(writers + 2, work)

        assert seen == [list(range(1, total + 1))] * 2

    def test_closing_wakes_who_waits(self, store: Store) -> None:
        raised: list[BaseException] = []
        begun = threading.Event()
        store.commit(SPACE)

        def watch() -> None:
            try:
                for _ in store.watch(SPACE):
                    begun.set()
            except StoreClosed as error:
                raised.append(error)

        thread = threading.Thread(target=watch)
        thread.start()
        assert begun.wait(PATIENCE)
        store.close()
        thread.join(PATIENCE)

        assert not thread.is_alive()
        assert len(raised) == 1

    def test_a_watch_that_is_dropped_leaves_nothing_behind(self, store: Store) -> None:
        store.commit(SPACE)
        watch = store.watch(SPACE)
        next(watch)

        del watch

        store.commit(SPACE)
        assert store.view(SPACE).sequence == 2

    def test_a_hostile_watch_is_refused_at_once(self, store: Store) -> None:
        with pytest.raises(ValueError, match="parts"):
            store.watch("nonsense")
