"""A thread is a timeline: looked at, gone back in, branched, compared."""

from __future__ import annotations

import pytest

from ropewalk.errors import MessageNotFound
from ropewalk.testing._threads._base import (
    T1,
    Base,
    Face,
    Faces,
    everything,
    ids,
    numbered,
    said,
    texts,
)


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
