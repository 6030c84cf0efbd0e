"""The asynchronous interface: the same results, and no write is left half done."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable

import pytest

from ropewalk.errors import MissingObjects, StoreClosed
from ropewalk.store import Move, Operation, Ref, Store, ref_name
from ropewalk.store.engine import Append
from ropewalk.testing._stores._base import Base
from ropewalk.testing.helpers import MAIN, PATIENCE, SPACE, in_threads, value

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
