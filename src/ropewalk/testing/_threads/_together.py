"""`put`: a state, messages and a record in one step."""

from __future__ import annotations

from typing import Any

import pytest

from ropewalk.errors import InvalidInput
from ropewalk.testing._threads._base import (
    T1,
    Base,
    Face,
    Faces,
    commits,
    each,
    everything,
    numbered,
    said,
    texts,
)
from ropewalk.testing._threads._states import Unknown

BAD: list[dict[str, Any]] = [
    {"state": Unknown()},
    {"messages": [{"role": "nobody"}]},
    {"messages": None},
    {"messages": [{"role": "user", "content": "x", "metadata": {"x": Unknown()}}]},
    {"thread": {"thread_id": "other"}},
    {"thread": {"metadata": {"x": Unknown()}}},
    {"thread": "Name"},
    {"metadata": {"x": Unknown()}},
    {"metadata": "text"},
]


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

    def test_if_one_of_them_is_refused_none_is_stored(self, chat: Face) -> None:
        chat.put(T1, {"step": 1}, numbered(3), {"thread_name": "Name"})
        before = everything(chat), commits(chat)
        good: dict[str, Any] = {
            "state": {"step": 2},
            "messages": numbered(3, 3),
            "thread": {"thread_name": "Other"},
        }

        for bad in BAD:
            with each(bad), pytest.raises(InvalidInput):
                chat.put(T1, **{**good, **bad})
            assert (everything(chat), commits(chat)) == before
        chat.put(T1, **good)
        assert len(chat.list_messages(T1)) == 6

    def test_going_back_takes_all_three_back(self, chat: Face) -> None:
        chat.put(T1, {"step": 1}, numbered(3), {"thread_name": "first"})
        before = everything(chat)
        chat.put(T1, {"step": 2}, numbered(3, 3), {"thread_name": "second"})
        chat.timeline(T1).rollback()

        assert everything(chat) == before
