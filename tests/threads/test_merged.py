"""Threads whose branches were merged: what the bookkeeping of one side does not know."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from holdfast import MemoryStore
from holdfast.errors import MessageNotFound
from holdfast.threads import Message, ThreadCheckpointer

MAIN: dict[str, Any] = {"thread_id": "t", "branch": "main"}
SIDE: dict[str, Any] = {"thread_id": "t", "branch": "side"}


def said(ids: Iterable[int]) -> list[Message]:
    return [Message("user", f"message {id}", id=id) for id in ids]


def branched(count: int) -> ThreadCheckpointer[Any]:
    """A thread of so many messages, with a branch."""
    chat: ThreadCheckpointer[Any] = ThreadCheckpointer(MemoryStore())
    chat.put_messages({"thread_id": "t"}, said(range(count)))
    timeline = chat.timeline({"thread_id": "t"})
    timeline.branch("side")
    timeline.switch_branch("main")
    return chat


def merged(chat: ThreadCheckpointer[Any]) -> ThreadCheckpointer[Any]:
    """The branch merged into main, seen by somebody who remembers nothing."""
    chat.timeline(MAIN).merge("side")
    return ThreadCheckpointer(chat.store)


def test_a_message_that_one_side_deleted_is_not_found_by_the_ids_that_the_other_listed() -> None:
    chat = branched(5)
    chat.put_messages(SIDE, said(range(100, 250)))
    chat.delete_message(MAIN, 3)
    chat = merged(chat)

    with pytest.raises(MessageNotFound):
        chat.get_message(MAIN, 3)
    with pytest.raises(MessageNotFound):
        chat.delete_message(MAIN, 3)
    assert [one.id for one in chat.list_messages(MAIN, limit=5)] == [0, 1, 2, 4, 100]


def test_a_message_that_one_side_deleted_is_the_latest_when_it_is_put_again() -> None:
    chat = branched(5)
    chat.put_messages(SIDE, said(range(100, 250)))
    chat.delete_message(MAIN, 3)
    chat = merged(chat)
    chat.put_messages(MAIN, said([3]))
    again = ThreadCheckpointer[Any](chat.store)

    assert again.get_message(MAIN).id == 3
    assert again.get_message(MAIN, 3).text == "message 3"
    assert len(again.list_messages(MAIN)) == 155


def test_a_message_that_one_side_appended_is_found_though_the_other_listed_ids() -> None:
    chat = branched(5)
    chat.put_messages(SIDE, said(range(100, 250)))
    chat.delete_message(SIDE, 100)
    chat.put_messages(MAIN, said([77]))
    chat = merged(chat)
    found = chat.get_message(MAIN, 77)
    chat.put_messages(MAIN, [found])
    listed = [one.id for one in chat.list_messages(MAIN)]

    assert found.text == "message 77"
    assert listed == [*range(5), 77, *range(101, 250)]
    assert [chat.get_message(MAIN, id).id for id in listed] == listed


def test_two_wrongs_in_the_list_of_ids_are_no_bare_error() -> None:
    chat = branched(5)
    chat.put_messages(SIDE, said(range(100, 250)))
    chat.delete_message(SIDE, 100)
    chat.put_messages(MAIN, said([77]))
    chat.delete_message(MAIN, 3)
    chat = merged(chat)

    with pytest.raises(MessageNotFound):
        chat.get_message(MAIN, 3)
    assert 77 in [one.id for one in chat.list_messages(MAIN)]
