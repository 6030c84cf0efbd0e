"""Opening and closing."""

from __future__ import annotations

import asyncio

import pytest

from ropewalk.errors import StoreClosed
from ropewalk.store import MemoryStore
from ropewalk.testing._threads._base import T1, Base, Face, Faces, said
from ropewalk.threads import ThreadCheckpointer


class LifeContract(Base):
    """setup, release."""

    def test_setup_may_be_called_at_any_time_and_needs_not_be(self, chat: Face) -> None:
        assert chat.setup() is None
        chat.put_state(T1, 1)
        assert chat.setup() is None

        assert chat.get_state(T1) == 1

    def test_release_leaves_a_store_open_that_was_handed_over(self, chat: Face) -> None:
        chat.put_state(T1, 1)

        assert chat.release() is True
        assert chat.release() is True

        assert chat.store.spaces() == ["threads/t1"]
        assert ThreadCheckpointer[int](chat.store).get_state(T1) == 1

    def test_release_closes_what_it_opened(self, runner: asyncio.Runner | None) -> None:
        chat = Face(ThreadCheckpointer(), runner)
        chat.put_state(T1, 1)

        assert chat.release() is True
        assert chat.release() is True

        with pytest.raises(StoreClosed):
            chat.get_state(T1)
        with pytest.raises(StoreClosed):
            chat.put_state(T1, 1)

    def test_what_was_stored_is_there_for_the_next_one(self, chat: Face, opened: Faces) -> None:
        if chat.store.durability == "none":
            pytest.skip("this store keeps nothing")
        chat.put(T1, {"step": 1}, said("a"), {"thread_name": "Name"})
        chat.store.close()

        again = opened()
        assert again.get_state(T1) == {"step": 1}
        assert again.get_message(T1).text == "a"
        assert again.get_thread(T1).thread_name == "Name"

    def test_a_block_releases_at_its_end(self) -> None:
        with ThreadCheckpointer[int]() as chat:
            chat.put_state(T1, 1)
        with pytest.raises(StoreClosed):
            chat.get_state(T1)
        store = MemoryStore()
        with ThreadCheckpointer[int](store) as chat:
            chat.put_state(T1, 1)
        assert chat.get_state(T1) == 1
        store.close()

    def test_an_asynchronous_block_releases_at_its_end(self) -> None:
        async def use() -> None:
            async with ThreadCheckpointer[int]() as chat:
                await chat.aput_state(T1, 1)
            with pytest.raises(StoreClosed):
                await chat.aget_state(T1)

        asyncio.run(use())
