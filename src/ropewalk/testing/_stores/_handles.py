"""Store objects: opening and closing, watching, and the asynchronous twins."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable
from queue import Queue

import pytest

from ropewalk.errors import MissingObjects, StoreClosed
from ropewalk.store import Move, Operation, Ref, Store, ref_name
from ropewalk.store.engine import FORMAT_VERSION, Append, Capabilities
from ropewalk.testing._stores._base import Base
from ropewalk.testing.helpers import (
    MAIN,
    OTHER_SPACE,
    PATIENCE,
    SPACE,
    growing,
    in_threads,
    read,
    value,
)


class LifeContract(Base):
    """A store's metadata, and persistence."""

    def test_a_store_says_what_it_is(self, store: Store) -> None:
        assert store.backend_id
        assert store.answers_to(store.backend_id)
        assert not store.answers_to("somebody else")
        assert store.durability in ("full", "relaxed", "none")
        assert isinstance(store.capabilities, Capabilities)
        assert (store.header.format, store.header.algorithm) == (FORMAT_VERSION, "sha256")
        assert len(store.header.store_id) == 16
        assert store.backend_id in repr(store)

    def test_a_closed_store_says_so(self, store: Store) -> None:
        lease = store.acquire(SPACE, ref_name("lease", "x"), "me", 10.0)
        (record,) = store.leases(SPACE)
        calls: list[Callable[[], object]] = [
            lambda: store.read([]),
            lambda: store.reader(SPACE),
            lambda: store.missing([]),
            lambda: store.find(SPACE, b"key"),
            lambda: store.commit(SPACE),
            lambda: store.ref(SPACE, MAIN),
            lambda: store.refs(SPACE),
            lambda: store.view(SPACE),
            store.spaces,
            lambda: store.operations(SPACE),
            lambda: store.watch(SPACE),
            lambda: store.acquire(SPACE, MAIN, "me", 10.0),
            lambda: store.seize(SPACE, record, "you", 10.0),
            lambda: store.renew(lease),
            lambda: store.release(lease),
            lambda: store.leases(SPACE),
            store.scan,
        ]

        store.close()
        store.close()

        for call in calls:
            with pytest.raises(StoreClosed):
                call()

    def test_a_store_closes_at_the_end_of_a_block(self, store: Store) -> None:
        with store as opened:
            opened.commit(SPACE)

        with pytest.raises(StoreClosed):
            store.commit(SPACE)

    def test_closing_one_store_object_leaves_the_others_open(
        self, store: Store, second: Store
    ) -> None:
        if not self.several_handles:
            pytest.skip("this engine has one store object at a time")
        store.commit(SPACE)

        store.close()

        assert second.commit(SPACE).sequence == 2

    def test_what_was_written_is_there_after_reopening(
        self, store: Store, opener: Callable[[], Store]
    ) -> None:
        if not store.capabilities.persists:
            pytest.skip("this engine keeps nothing")
        versions = growing(10)
        for version in versions[:9]:
            store.commit(SPACE, [version])
        head = versions[-1].id
        store.commit(SPACE, [versions[-1]], moves=[Move(MAIN, None, head)], write_id="last")
        epoch = store.view(SPACE).epoch
        token = store.acquire(SPACE, ref_name("lease", "x"), "me", 10.0).token
        done, header = store.operations(SPACE), store.header
        store.close()

        again = opener()

        assert again.header == header
        assert again.view(SPACE) == (10, epoch, (Ref(MAIN, head, 10),))
        assert again.operations(SPACE) == done
        found = read(again, [one.id for one in versions])
        assert [one.payload for one in found] == [one.payload for one in versions]
        repeated = again.commit(
            SPACE, [versions[-1]], moves=[Move(MAIN, None, head)], write_id="last"
        )
        assert repeated == done[-1]
        assert again.acquire(SPACE, ref_name("lease", "x"), "me", 10.0).token > token


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


WITHOUT_TWIN = {"holds"}  # It does no I/O, so it does not block.


class AsynchronousContract(Base):
    """The asynchronous twins."""

    def test_every_method_has_a_twin(self, store: Store) -> None:
        for name, _ in inspect.getmembers(Store, inspect.isfunction):
            if not name.startswith("_") and not hasattr(Store, name.removeprefix("a")):
                assert name in WITHOUT_TWIN or hasattr(store, f"a{name}"), name

    def test_the_twins_give_the_same_answers(self, store: Store) -> None:
        one, lease_name = value("one"), ref_name("lease", "x")

        async def use() -> None:
            done = await store.acommit(SPACE, [one], moves=[Move(MAIN, None, one.id)], share=True)
            assert await store.aread([one.id]) == [one]
            assert await store.amissing([one.id]) == []
            assert await store.aref(SPACE, MAIN) == Ref(MAIN, one.id, 1)
            assert await store.arefs(SPACE, prefix="branch/") == [Ref(MAIN, one.id, 1)]
            assert (await store.aview(SPACE)).sequence == 1
            assert await store.aspaces() == [SPACE]
            assert await store.aoperations(SPACE) == [done]
            lease = await store.aacquire(SPACE, lease_name, "me", 10.0)
            lease = await store.arenew(lease)
            assert [record.holder for record in await store.aleases(SPACE)] == ["me"]
            (record,) = await store.aleases(SPACE)
            seized = await store.aseize(SPACE, record, "you", 10.0)
            assert seized is not None
            assert not await store.arelease(lease)
            assert await store.arelease(seized)
            assert [stored.id async for stored in store.ascan()] == [one.id]
            assert [seen async for seen in store.awatch(SPACE, timeout=0)] == [done]

        asyncio.run(use())

    def test_a_twin_raises_what_its_method_raises(self, store: Store) -> None:
        with pytest.raises(MissingObjects):
            asyncio.run(store.aread([value("absent").id]))

    def test_a_write_is_finished_although_its_task_is_cancelled(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        gate = Gate(store._land)
        monkeypatch.setattr(store, "_land", gate)
        one = value("one")

        async def use() -> None:
            task = asyncio.create_task(
                store.acommit(SPACE, [one], moves=[Move(MAIN, None, one.id)])
            )
            await asyncio.to_thread(gate.entered.wait, PATIENCE)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert store.ref(SPACE, MAIN) is None
            gate.opened.set()
            assert await asyncio.to_thread(gate.finished.wait, PATIENCE)

        asyncio.run(use())

        assert store.ref(SPACE, MAIN) == Ref(MAIN, one.id, 1)

    def test_closing_waits_for_a_write_whose_loop_is_gone(
        self, store: Store, second: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        gate = Gate(store._land)
        monkeypatch.setattr(store, "_land", gate)

        async def begin() -> None:
            task = asyncio.create_task(store.acommit(SPACE))
            await asyncio.to_thread(gate.entered.wait, PATIENCE)
            task.cancel()

        asyncio.run(begin())
        gate.opened.set()
        store.close()

        assert gate.finished.is_set()
        if self.several_handles:
            assert second.view(SPACE).sequence == 1

    def test_loops_in_several_threads_share_a_store(self, store: Store) -> None:
        async def use() -> None:
            await asyncio.gather(*(store.acommit(SPACE) for _ in range(10)))

        in_threads(3, lambda _: asyncio.run(use()))

        assert [one.sequence for one in store.operations(SPACE)] == list(range(1, 31))

    def test_many_tasks_share_few_threads(self, store: Store) -> None:
        async def use() -> list[Operation]:
            return await asyncio.gather(*(store.acommit(SPACE) for _ in range(100)))

        done = asyncio.run(use())

        assert sorted(one.sequence for one in done) == list(range(1, 101))

    def test_a_watching_task_is_woken_and_holds_no_thread(
        self, store: Store, second: Store
    ) -> None:
        async def first_of() -> int:
            async for operation in store.awatch(SPACE, timeout=PATIENCE):
                return operation.sequence
            return 0

        async def use() -> list[int]:
            watchers = [asyncio.create_task(first_of()) for _ in range(50)]
            await asyncio.sleep(0)
            await second.acommit(SPACE)
            return await asyncio.gather(*watchers)

        assert asyncio.run(use()) == [1] * 50

    def test_a_task_that_stops_watching_leaves_nothing_behind(self, store: Store) -> None:
        async def watch() -> None:
            async for _ in store.awatch(SPACE):
                pass

        async def use() -> None:
            task = asyncio.create_task(watch())
            await store.acommit(SPACE)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await store.acommit(SPACE)

        asyncio.run(use())

        assert store.view(SPACE).sequence == 2

    def test_what_a_task_set_is_set_on_the_thread(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
        commit, seen = store._land, list[str]()

        def noting(append: Append) -> Operation:
            seen.append(variable.get())
            return commit(append)

        monkeypatch.setattr(store, "_land", noting)

        async def use() -> None:
            variable.set("from the task")
            await store.acommit(SPACE)

        asyncio.run(use())

        assert seen == ["from the task"]

    def test_a_store_closes_at_the_end_of_an_asynchronous_block(self, store: Store) -> None:
        async def use() -> None:
            async with store as opened:
                await opened.acommit(SPACE)
            with pytest.raises(StoreClosed):
                await store.aview(SPACE)
            with pytest.raises(StoreClosed):
                store.awatch(SPACE)

        asyncio.run(use())


class Gate:
    """A commit that blocks until it is released."""

    def __init__(self, commit: Callable[[Append], Operation]) -> None:
        self.commit = commit
        self.entered = threading.Event()
        self.opened = threading.Event()
        self.finished = threading.Event()

    def __call__(self, append: Append) -> Operation:
        """Wait, then commit."""
        self.entered.set()
        assert self.opened.wait(PATIENCE)
        try:
            return self.commit(append)
        finally:
            self.finished.set()
