"""Many at once: threads, tasks, and event loops, on one checkpointer or on two."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ropewalk.errors import MessageNotFound
from ropewalk.testing._threads._base import T1, Base, Opener, ids
from ropewalk.testing.helpers import PATIENCE, in_threads
from ropewalk.threads import ThreadCheckpointer

EACH = 10


def message(by: int, number: int) -> dict[str, Any]:
    """A message that says who put it."""
    return {"role": "user", "content": f"by {by}", "id": f"{by}/{number}"}


def check_order(found: list[Any], writers: int, each: int) -> None:
    """Every message once, and those of one writer in the writer's order."""
    assert len(found) == writers * each
    for by in range(writers):
        own = [id for id in found if str(id).startswith(f"{by}/")]
        assert own == [f"{by}/{number}" for number in range(each)]


class ConcurrencyContract(Base):
    """Nothing is lost or done twice, and all see one order."""

    @pytest.fixture
    def pair(self, open_checkpointer: Opener) -> Any:
        """Two checkpointers on the same data."""
        two = [open_checkpointer(), open_checkpointer()]
        yield two
        for one in two:
            one.store.close()

    def test_threads_that_append_lose_nothing(self, pair: list[ThreadCheckpointer[Any]]) -> None:
        def work(by: int) -> None:
            for number in range(EACH):
                pair[by % 2].put_messages(T1, [message(by, number)])
                assert pair[by % 2].get_message(T1, f"{by}/{number}").text == f"by {by}"

        in_threads(4, work)

        found = ids(pair[0].list_messages(T1))
        check_order(found, 4, EACH)
        assert ids(pair[1].list_messages(T1)) == found
        assert ids(pair[1].list_messages(T1, "by")) == found

    def test_threads_that_put_the_same_messages_store_each_once(
        self, pair: list[ThreadCheckpointer[Any]]
    ) -> None:
        def work(by: int) -> None:
            for number in range(EACH):
                pair[by % 2].put_messages(T1, [message(0, number)])

        in_threads(4, work)

        assert ids(pair[0].list_messages(T1)) == [f"0/{number}" for number in range(EACH)]
        assert len(pair[0].timeline(T1).history(limit=None)) == EACH

    def test_threads_that_delete_leave_nothing_and_each_is_deleted_by_one(
        self, pair: list[ThreadCheckpointer[Any]]
    ) -> None:
        pair[0].put_messages(T1, [message(0, number) for number in range(4 * EACH)])
        deleted: list[int] = []

        def work(by: int) -> None:
            for number in range(by, by + 2 * EACH):
                try:
                    pair[by % 2].delete_message(T1, f"0/{number}")
                except MessageNotFound:
                    continue
                deleted.append(number)

        in_threads(4, work)

        assert sorted(deleted) == list(range(2 * EACH + 3))
        assert len(pair[0].list_messages(T1)) == 2 * EACH - 3

    def test_a_state_and_its_message_are_of_one_writer(
        self, pair: list[ThreadCheckpointer[Any]]
    ) -> None:
        def work(by: int) -> None:
            for number in range(EACH):
                one = f"{by}/{number}"
                pair[by % 2].put(T1, one, [message(by, number)], {"thread_name": one})

        in_threads(4, work)

        checkpoints = pair[0].timeline(T1).history(limit=None)
        assert len(checkpoints) == 4 * EACH
        for one in checkpoints:
            held = one.state
            last = max(key for key in held if isinstance(key, int))
            assert held["state"] == held["thread"]["thread_name"] == held[last]["id"]

    def test_loops_in_several_threads_share_a_checkpointer(
        self, pair: list[ThreadCheckpointer[Any]]
    ) -> None:
        chat = pair[0]

        async def use(by: int) -> None:
            async def talk(config: dict[str, Any]) -> None:
                for number in range(EACH // 2):
                    await chat.aput_messages(config, [message(by, number)])
                    await chat.aput_state_cache(config, number)
                    await chat.alist_messages(config, "by", limit=2)

            await asyncio.gather(talk(T1), talk({"thread_id": f"of {by}"}))

        in_threads(3, lambda by: asyncio.run(use(by)))

        check_order(ids(pair[1].list_messages(T1)), 3, EACH // 2)
        for by in range(3):
            own = pair[1].list_messages({"thread_id": f"of {by}"})
            assert ids(own) == [f"{by}/{number}" for number in range(EACH // 2)]

    def test_many_tasks_at_once_lose_nothing(self, pair: list[ThreadCheckpointer[Any]]) -> None:
        chat = pair[0]

        async def use() -> None:
            await asyncio.gather(*(chat.aput_messages(T1, [message(by, 0)]) for by in range(200)))
            found = await asyncio.gather(*(chat.aget_message(T1, f"{by}/0") for by in range(200)))
            assert [one.text for one in found] == [f"by {by}" for by in range(200)]

        asyncio.run(asyncio.wait_for(use(), 10 * PATIENCE))

        check_order(ids(pair[1].list_messages(T1)), 200, 1)

    def test_what_a_cancelled_task_began_is_done_whole_or_not_at_all(
        self, pair: list[ThreadCheckpointer[Any]]
    ) -> None:
        chat = pair[0]

        async def use() -> None:
            tasks = [
                asyncio.create_task(chat.aput(T1, by, [message(by, 0), message(by, 1)]))
                for by in range(20)
            ]
            await tasks[0]
            for task in tasks[1::2]:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert all(task.cancelled() or task.exception() is None for task in tasks)
            # Those that were begun are finished before anything that comes after them.
            done = [by for by, task in enumerate(tasks) if not task.cancelled()]
            for by in done:
                assert (await chat.aget_message(T1, f"{by}/1")).text == f"by {by}"

        asyncio.run(use())
        found = ids(chat.list_messages(T1))

        for by in range(20):
            own = [id for id in found if id.startswith(f"{by}/")]
            assert own in ([], [f"{by}/0", f"{by}/1"])
        chat.put_messages(T1, [message(by, number) for by in range(20) for number in range(2)])
        assert len(chat.list_messages(T1)) == 40
