"""History: atomic puts, rollback, branches, concurrency and persistence."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ropewalk.errors import MessageNotFound
from ropewalk.testing.helpers import PATIENCE, in_threads
from ropewalk.testing.threads.faces import (
    T1,
    Base,
    Face,
    Faces,
    Opener,
    commits,
    everything,
    ids,
    numbered,
    said,
    texts,
)
from ropewalk.threads import ThreadCheckpointer


class HistoryContract(Base):
    """timeline."""

    def test_every_change_is_a_step_that_says_what_it_was(self, chat: Face) -> None:
        chat.put_messages(T1, said("a", "b"))
        chat.put_state(T1, 1)
        chat.put_thread(T1, {"thread_name": "Name"})
        chat.delete_message(T1, "m0")
        chat.clear_state(T1)
        chat.put(T1, 2, said("c", first=2), {"thread_name": "Other"})
        chat.clean_thread(T1)

        steps = chat.timeline(T1).history(limit=None)[::-1]
        assert [one.logic_step for one in steps] == [
            "put_messages", "put_state", "put_thread", "delete_message", "clear_state", "put",
            "clean_thread",
        ]  # fmt: skip
        assert steps[0].description == "2 messages"
        assert all(one.description for one in steps)

    def test_a_thread_can_be_gone_back_in_and_goes_on_from_there(
        self, chat: Face, opened: Faces
    ) -> None:
        seen = []
        for step in range(4):
            chat.put(T1, step, numbered(50, 50 * step), {"thread_name": f"{step}"})
            seen.append(everything(chat))
        other = opened()
        chat.timeline(T1).rollback(2)

        assert everything(chat) == everything(other) == seen[1]
        chat.put_messages(T1, numbered(50, 100))
        other.put_messages(T1, said("more", first=200))
        assert ids(chat.list_messages(T1)) == [f"m{one}" for one in [*range(150), 200]]
        assert chat.get_message(T1, "m120").text == "number 120"

    def test_a_rollback_elsewhere_is_seen(self, chat: Face, opened: Faces) -> None:
        chat.put(T1, 1, numbered(2))
        chat.put(T1, 2, numbered(2, 2))
        opened().timeline(T1).rollback()

        assert chat.get_state(T1) == 1
        chat.put_messages(T1, said("after", first=9))
        assert ids(chat.list_messages(T1)) == ["m0", "m1", "m9"]

    def test_a_rollback_can_be_undone(self, chat: Face) -> None:
        chat.put(T1, 1, numbered(2))
        chat.put(T1, 2, numbered(2, 2))
        history = chat.timeline(T1)
        history.rollback()
        history.undo()

        assert chat.get_state(T1) == 2
        assert len(chat.list_messages(T1)) == 4

    def test_branches_go_their_own_ways(self, chat: Face, opened: Faces) -> None:
        chat.put(T1, 1, numbered(130), {"thread_name": "Name"})
        chat.timeline(T1).branch("other")
        chat.put(T1, 2, said("on other", first=130))
        main = {**T1, "branch": "main"}
        chat.put_messages(main, said("on main", first=130))
        chat.delete_message(main, "m0")

        for one in (chat, opened()):
            assert one.get_state(T1) == 2
            assert one.get_message(T1).text == "on other"
            assert one.get_message(T1, "m0").text == "number 0"
            assert one.get_state(main) == 1
            assert one.get_message(main).text == "on main"
            assert len(one.list_messages(main)) == 130
            assert one.get_state({**T1, "branch": "other"}) == 2

    def test_calls_follow_the_current_branch_wherever_it_was_switched(
        self, chat: Face, opened: Faces
    ) -> None:
        other = opened()
        chat.put_messages(T1, said("first"))
        assert texts(other.list_messages(T1)) == ["first"]
        history = chat.timeline(T1)
        history.branch("b")
        chat.put_messages(T1, said("on b", first=1))

        assert texts(other.list_messages(T1)) == ["first", "on b"]
        other.put_messages(T1, said("also on b", first=2))
        history.switch_branch("main")
        assert texts(other.list_messages(T1)) == texts(chat.list_messages(T1)) == ["first"]
        chat.put_messages(T1, said("on main", first=3))
        assert texts(other.list_messages(T1)) == ["first", "on main"]
        assert texts(other.list_messages({**T1, "branch": "b"})) == ["first", "on b", "also on b"]

    def test_a_write_follows_a_branch_that_was_made_here_however_its_timeline_was_opened(
        self, chat: Face
    ) -> None:
        chat.put_state(T1, "on main")
        chat.timeline({**T1, "branch": "main"}).branch("b")
        chat.put_state(T1, "on b")

        assert chat.get_state({**T1, "branch": "b"}) == "on b"
        assert chat.get_state({**T1, "branch": "main"}) == "on main"

    def test_a_branch_from_an_earlier_step_holds_what_was_there_then(self, chat: Face) -> None:
        first = chat.put(T1, 1, numbered(2))
        chat.put(T1, 2, numbered(2, 2))
        chat.timeline(T1).branch("earlier", first)

        assert chat.get_state(T1) == 1
        assert ids(chat.list_messages(T1)) == ["m0", "m1"]
        chat.put_messages(T1, said("later", first=3))
        assert ids(chat.list_messages(T1)) == ["m0", "m1", "m3"]

    def test_branches_whose_messages_stand_apart_are_merged(self, chat: Face) -> None:
        chat.put(T1, 1, said("a"))
        chat.timeline(T1).branch("other")
        chat.put_messages(T1, said("b", first=1))
        chat.timeline(T1).switch_branch("main")
        chat.put_thread(T1, {"thread_name": "Name"})
        chat.timeline(T1).merge("other")

        assert texts(chat.list_messages(T1)) == ["a", "b"]
        assert chat.get_message(T1, "m1").text == "b"
        assert chat.get_thread(T1).thread_name == "Name"

    def test_after_a_merge_that_takes_one_side_no_id_leads_to_another_message(
        self, chat: Face
    ) -> None:
        chat.put_messages(T1, numbered(100))
        history = chat.timeline(T1)
        history.branch("other")
        chat.put_messages(T1, numbered(10, 1000))
        history.switch_branch("main")
        chat.put_messages(T1, numbered(50, 100))
        history.merge("other", "theirs")

        for number in (100, 105, 109):
            with pytest.raises(MessageNotFound):
                chat.get_message(T1, f"m{number}")
            with pytest.raises(MessageNotFound):
                chat.delete_message(T1, f"m{number}")
        assert chat.get_message(T1, "m120").text == "number 120"

    def test_two_moments_are_compared_deeply(self, chat: Face) -> None:
        first = chat.put(T1, {"step": 1, "same": "x"}, said("a"))
        second = chat.put(T1, {"step": 2, "same": "x"}, said("b", first=1))

        changes = {str(one.path): one for one in chat.timeline(T1).diff(first, second)}
        assert any("step" in path for path in changes)
        assert not any("same" in path for path in changes)
        assert len(changes) == 3, "the state's step, the new message, and the mark"

    def test_a_thread_looks_back_to_any_moment(self, chat: Face) -> None:
        made = [chat.put(T1, step, numbered(1, step)) for step in range(3)]

        assert chat.timeline(T1).at(made[1]).state["state"] == 1

    def test_threads_of_users_have_histories_of_their_own(self, chat: Face) -> None:
        ann, bob = {**T1, "user_id": "ann"}, {**T1, "user_id": "bob"}
        for config in (ann, bob):
            chat.put_state(config, 1)
            chat.put_state(config, 2)
        chat.timeline(ann).rollback()

        assert (chat.get_state(ann), chat.get_state(bob)) == (1, 2)
        assert len(chat.timeline(bob).history()) == 2


class TogetherContract(Base):
    """put."""

    def test_all_three_are_stored_in_one_step(self, chat: Face, opened: Faces) -> None:
        made = chat.put(T1, {"step": 1}, said("a", "b"), {"thread_name": "Name"})

        for one in (chat, opened()):
            assert one.get_state(T1) == {"step": 1}
            assert texts(one.list_messages(T1)) == ["a", "b"]
            assert one.get_thread(T1).thread_name == "Name"
        (commit,) = chat.timeline(T1).history(limit=None)
        assert commit.id == made

    def test_what_is_left_out_stays(self, chat: Face) -> None:
        chat.put(T1, {"step": 1}, said("a"), {"thread_name": "Name"})
        chat.put(T1, messages=said("b", first=1))
        chat.put(T1, state={"step": 2})
        chat.put(T1, thread={"thread_name": "Other"})

        assert chat.get_state(T1) == {"step": 2}
        assert texts(chat.list_messages(T1)) == ["a", "b"]
        assert chat.get_thread(T1).thread_name == "Other"
        assert commits(chat) == 4

    def test_nothing_is_no_commit(self, chat: Face) -> None:
        assert chat.put(T1) is None
        chat.put_messages(T1, said("a"))
        assert chat.put(T1, None, said("a"), None) is None

        assert commits(chat) == 1

    def test_metadata_are_said_of_the_messages_and_of_the_commit(self, chat: Face) -> None:
        chat.put(T1, 1, said("a"), metadata={"turn": 7})

        assert chat.get_message(T1).metadata == {"turn": 7}
        assert chat.timeline(T1).head.metadata == {"turn": 7}

    def test_going_back_takes_all_three_back(self, chat: Face) -> None:
        chat.put(T1, {"step": 1}, numbered(3), {"thread_name": "first"})
        before = everything(chat)
        chat.put(T1, {"step": 2}, numbered(3, 3), {"thread_name": "second"})
        chat.timeline(T1).rollback()

        assert everything(chat) == before


EACH = 10


def message(by: int, number: int) -> dict[str, Any]:
    """A message that names its author."""
    return {"role": "user", "content": f"by {by}", "id": f"{by}/{number}"}


def check_order(found: list[Any], writers: int, each: int) -> None:
    """Every message once, and those of one writer in the writer's order."""
    assert len(found) == writers * each
    for by in range(writers):
        own = [id for id in found if str(id).startswith(f"{by}/")]
        assert own == [f"{by}/{number}" for number in range(each)]


class ConcurrencyContract(Base):
    """Nothing is lost or done twice, and all readers see one order."""

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
            # Calls in progress finish before any that follow them.
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


class LifeContract(Base):
    """setup, release."""

    def test_release_leaves_a_store_open_that_was_handed_over(self, chat: Face) -> None:
        chat.put_state(T1, 1)

        assert chat.release() is True
        assert chat.release() is True

        assert chat.store.spaces() == ["threads/t1"]
        assert ThreadCheckpointer[int](chat.store).get_state(T1) == 1

    def test_what_was_stored_is_there_for_the_next_one(self, chat: Face, opened: Faces) -> None:
        if chat.store.durability == "none":
            pytest.skip("this store keeps nothing")
        chat.put(T1, {"step": 1}, said("a"), {"thread_name": "Name"})
        chat.store.close()

        again = opened()
        assert again.get_state(T1) == {"step": 1}
        assert again.get_message(T1).text == "a"
        assert again.get_thread(T1).thread_name == "Name"
