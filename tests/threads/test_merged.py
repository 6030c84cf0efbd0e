"""Threads whose branches were merged or deleted by somebody else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from ropewalk import MemoryStore, Timeline
from ropewalk.errors import FormatError, InvalidInput, MessageNotFound, NotFound
from ropewalk.threads import Message, ThreadCheckpointer

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


def test_a_branch_that_somebody_else_deleted_is_not_begun_anew_by_who_wrote_to_it() -> None:
    chat = branched(5)
    writer: ThreadCheckpointer[Any] = ThreadCheckpointer(chat.store)
    writer.put_messages(SIDE, said([5]))
    chat.timeline(MAIN).delete_branch("side")

    with pytest.raises(NotFound, match="no branch 'side'"):
        writer.put_messages(SIDE, said([6]))
    assert [one.name for one in chat.timeline(MAIN).list_branches()] == ["main"]


def test_who_wrote_to_a_branch_that_is_gone_follows_the_current_one() -> None:
    chat = branched(5)
    chat.timeline({"thread_id": "t"}).switch_branch("side")
    writer: ThreadCheckpointer[Any] = ThreadCheckpointer(chat.store)
    writer.put_messages({"thread_id": "t"}, said([5]))
    timeline = chat.timeline({"thread_id": "t"})
    timeline.switch_branch("main")
    timeline.delete_branch("side")
    writer.put_messages({"thread_id": "t"}, said([6]))

    assert [one.id for one in chat.list_messages(MAIN)] == [*range(5), 6]
    assert [one.name for one in timeline.list_branches()] == ["main"]


def found_by_id(chat: ThreadCheckpointer[Any]) -> list[Any]:
    """The ids of the messages, each of which leads to its own."""
    chat = ThreadCheckpointer(chat.store)
    return [chat.get_message(MAIN, one.id).id for one in chat.list_messages(MAIN)]


@pytest.mark.parametrize("strategy", ["ours", "theirs"])
def test_a_merge_that_takes_one_side_knows_the_ids_of_messages_that_it_had_not_listed(
    strategy: str,
) -> None:
    chat = branched(1)
    chat.put_messages(SIDE, said(range(1000, 1300)))
    chat.put_messages(MAIN, said(range(100, 150)))
    chat.timeline(MAIN).merge("side", strategy)
    ids = [one.id for one in chat.list_messages(MAIN)]

    assert found_by_id(chat) == ids
    chat.put_messages(MAIN, [chat.get_message(MAIN, id) for id in ids])
    assert [one.id for one in chat.list_messages(MAIN)] == ids


def test_after_a_step_was_picked_every_message_is_found_by_its_id() -> None:
    chat = branched(1)
    chat.put_messages(SIDE, said(range(1000, 1050)))
    picked = chat.put(SIDE, None, said(range(1050, 1350)))
    assert picked is not None
    chat.put_messages(MAIN, said(range(100, 150)))
    chat.timeline(MAIN).cherry_pick(picked)

    assert found_by_id(chat) == [0, *range(100, 150), *range(1050, 1350)]


def test_states_that_two_branches_changed_in_other_places_are_merged() -> None:
    chat = branched(1)
    chat.put_state(MAIN, {"a": 1, "b": 1})
    chat.timeline(SIDE).merge("main")
    chat.put_state(SIDE, {"a": 2, "b": 1})
    chat.put_state(MAIN, {"a": 1, "b": 2})
    chat.put_state_cache(MAIN, {"a": 0, "b": 0})
    chat.timeline(MAIN).merge("side")

    assert chat.get_state(MAIN) == {"a": 2, "b": 2}
    assert chat.get_state_cache(MAIN) is None


def test_what_a_step_did_to_a_state_is_taken_back_from_a_later_one() -> None:
    chat = branched(1)
    chat.put_state(MAIN, {"a": 1, "b": 1})
    wrong = chat.put(MAIN, {"a": 2, "b": 1})
    assert wrong is not None
    chat.put_state(MAIN, {"a": 2, "b": 2})
    chat.timeline(MAIN).revert(wrong)

    assert chat.get_state(MAIN) == {"a": 1, "b": 2}


def test_many_messages_are_taken_back_beneath_many_others() -> None:
    chat = branched(1)
    wrong = chat.put(MAIN, None, said(range(1000, 1200)))
    assert wrong is not None
    chat.put_messages(MAIN, said(range(2000, 2200)))
    chat.timeline(MAIN).revert(wrong)

    assert found_by_id(chat) == [0, *range(2000, 2200)]
    chat.put_messages(MAIN, said([1000]))
    assert chat.get_message(MAIN).id == 1000


def test_a_timeline_of_a_thread_takes_no_states_that_are_no_conversations() -> None:
    chat = branched(1)
    timeline = chat.timeline(MAIN)

    with pytest.raises(InvalidInput, match="is a thread"):
        timeline.checkpoint({"step": 1})
    with pytest.raises(InvalidInput, match="is a thread"):
        timeline.safe_execute(lambda state: state, {"step": 1})
    with pytest.raises(InvalidInput, match="is a thread"):
        timeline.fork("another").checkpoint({"step": 1})
    assert found_by_id(chat) == [0]


def test_what_somebody_else_saved_under_the_name_of_a_thread_is_told_apart() -> None:
    chat = branched(1)
    Timeline("other", chat.store, tenant="threads").checkpoint({"step": 1})

    with pytest.raises(FormatError, match="no conversation"):
        chat.get_state({"thread_id": "other"})
    assert [one.thread_id for one in chat.list_threads()] == ["t"]


@pytest.mark.parametrize("mergers", [5, "ours", [("state",)]])
def test_mergers_that_are_none_are_refused(mergers: Any) -> None:
    chat = branched(5)
    chat.put_messages(SIDE, said([5]))
    chat.put_state(MAIN, "state")
    timeline = chat.timeline(MAIN)

    with pytest.raises(InvalidInput, match="mergers are a dict"):
        timeline.merge("side", mergers=mergers)
    with pytest.raises(InvalidInput, match="mergers are a dict"):
        timeline.revert(timeline.history()[0].id, mergers=mergers)
