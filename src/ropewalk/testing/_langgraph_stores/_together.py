"""Several callers at once."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from langgraph.store.base import BaseStore

from ropewalk.testing._langgraph_stores._base import NOTES, Base, Face

THREADS = 8


class TogetherContract(Base):
    """One store, many threads and tasks."""

    def test_threads_lose_nothing_of_each_other(self, store: BaseStore) -> None:

        def work(number: int) -> None:
            for step in range(5):
                store.put((*NOTES, f"n{number}"), f"k{step}", {"by": number})
                assert store.get((*NOTES, f"n{number}"), f"k{step}") is not None

        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(work, range(THREADS)))

        assert len(store.search(NOTES, limit=1000)) == THREADS * 5
        assert len(store.list_namespaces()) == THREADS

    def test_tasks_lose_nothing_of_each_other(self, store: BaseStore) -> None:

        async def work(number: int) -> Any:
            await store.aput(NOTES, f"k{number}", {"by": number})
            return await store.aget(NOTES, f"k{number}")

        async def all_at_once() -> list[Any]:
            return await asyncio.gather(*(work(number) for number in range(20)))

        found = asyncio.run(all_at_once())

        assert [item.value["by"] for item in found] == list(range(20))
        assert len(store.search(NOTES, limit=100)) == 20

    def test_a_store_works_on_one_loop_after_another(self, store: BaseStore) -> None:
        for number in range(3):
            asyncio.run(store.aput(NOTES, f"k{number}", {}))

        assert len(asyncio.run(store.asearch(NOTES))) == 3

    def test_an_item_is_never_half_written(self, memory: Face) -> None:
        def work(number: int) -> None:
            memory.store.put(NOTES, "k", {"first": number, "second": number})

        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(work, range(24)))
        value = memory.get(NOTES, "k").value

        assert value["first"] == value["second"]
