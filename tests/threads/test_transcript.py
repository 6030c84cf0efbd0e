"""Transcripts: the items of a framework, appended, saved whole, forked and shown."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ropewalk import Store
from ropewalk.errors import Conflict, InvalidInput, NotFound, NotStorable, RefMoved
from ropewalk.threads import ThreadCheckpointer, Transcript, shape
from ropewalk.threads.items import CacheBudget
from tests.engines import ENGINES, Opener, opening
from tests.patience import wait_until

USER, ANSWER = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}


@pytest.fixture(params=list(ENGINES))
def open_store(request: pytest.FixtureRequest, memory_folder: Path) -> Iterator[Opener]:
    with opening(request.param, memory_folder) as opener:
        yield opener


@pytest.fixture
def store(open_store: Opener) -> Store:
    return open_store()


@pytest.fixture
def chat(store: Store) -> Transcript:
    return Transcript("chat", store)


def again(chat: Transcript, **options: Any) -> Transcript:
    return Transcript("chat", chat.threads, **options)


def numbered(count: int) -> list[dict[str, Any]]:
    return [{"role": "user", "content": f"number {n}"} for n in range(count)]


# Appending and reading.


def test_what_was_appended_is_read_in_order(chat: Transcript) -> None:
    chat.append([USER], {"step": 1})
    chat.append([ANSWER, {"type": "other", "n": (1, 2.5, None, b"x")}])

    assert chat.items() == [USER, ANSWER, {"type": "other", "n": (1, 2.5, None, b"x")}]
    assert chat.state() == {"step": 1}
    assert chat.count() == 3


def test_a_new_one_has_nothing(chat: Transcript) -> None:
    assert (chat.items(), chat.state(), chat.count(), chat.head()) == ([], None, 0, "")
    assert chat.read() == ([], None, "")
    assert chat.turns() == []


@pytest.mark.parametrize("limit", [0, 1, 3, 7, 100])
def test_a_limit_gives_the_last_items(open_store: Opener, limit: int) -> None:
    Transcript("chat", open_store()).append(numbered(7))
    cold = Transcript("chat", open_store())

    assert cold.items(limit) == numbered(7)[max(0, 7 - limit) :]
    assert cold.items() == numbered(7)
    assert cold.items(limit) == numbered(7)[max(0, 7 - limit) :]


def test_items_belong_to_their_readers(chat: Transcript) -> None:
    given = [{"role": "user", "content": ["a"]}]
    chat.append(given)
    given[0]["content"].append("later")  # type: ignore[attr-defined]
    chat.items()[0]["content"].append("read")

    assert chat.items() == [{"role": "user", "content": ["a"]}]


def test_large_items_come_back(chat: Transcript, open_store: Opener) -> None:
    items = [{"role": "tool", "content": "x" * 5_000}, {"data": b"y" * 300_000}, "z" * 3_000]
    chat.append(items)

    assert chat.items() == items
    assert Transcript("chat", open_store()).items() == items


def test_an_item_that_cannot_be_stored_leaves_nothing(chat: Transcript) -> None:
    with pytest.raises(NotStorable):
        chat.append([USER, object()], {"n": 1})
    with pytest.raises(InvalidInput, match="list"):
        chat.append(USER)  # type: ignore[arg-type]

    assert chat.read() == ([], None, "")


def test_a_state_goes_with_its_items(chat: Transcript) -> None:
    chat.append([USER], {"n": 1})
    chat.append([ANSWER])
    chat.put_state({"n": 2})

    assert [chat.at(turn).state for turn in (1, 2, 3)] == [{"n": 1}, {"n": 1}, {"n": 2}]
    assert chat.items() == [USER, ANSWER]
    assert chat.threads.get_state({"thread_id": "chat"}) == {"n": 2}


def test_another_object_and_another_process_see_it(chat: Transcript, open_store: Opener) -> None:
    other = Transcript("chat", open_store())
    other.append([USER])
    chat.items()
    other.append([ANSWER])

    assert chat.items() == other.items() == [USER, ANSWER]


def test_users_and_branches_are_apart(chat: Transcript) -> None:
    chat.append([USER])
    again(chat, user_id="alice").append([ANSWER])
    chat.timeline().branch("second")
    again(chat, branch="second").append([ANSWER])

    assert again(chat, branch="main").items() == [USER]
    assert again(chat, branch="second").items() == [USER, ANSWER]
    assert again(chat, user_id="alice").items() == [ANSWER]
    assert [one.thread_id for one in chat.threads.list_threads()] == ["chat"]


# Handing over everything.


def test_saving_the_same_makes_no_commit(chat: Transcript) -> None:
    chat.save(numbered(3))
    head = chat.head()

    assert chat.save(numbered(3)) == head
    assert len(chat.turns()) == 1


def test_saving_more_appends(chat: Transcript) -> None:
    chat.save(numbered(300))
    head = chat.head()
    chat.save(numbered(303))

    assert chat.items() == numbered(303)
    changes = chat.timeline().diff(head)
    assert [one.path[0] for one in changes] == [300, 301, 302]


@pytest.mark.parametrize("place", [0, 5, 9])
def test_a_change_in_place_is_noticed(chat: Transcript, open_store: Opener, place: int) -> None:
    items: list[Any] = [{"role": "user", "content": [{"n": n}]} for n in range(10)]
    chat.save(items)
    head = chat.head()
    items[place]["content"][0]["n"] = 1.0 * place
    chat.save(items)

    assert [type(one["content"][0]["n"]) for one in chat.items()].count(float) == 1
    assert Transcript("chat", open_store()).items() == items
    assert {one.path[:2] for one in chat.timeline().diff(head)} <= {(place, "at"), (place, "item")}


@pytest.mark.parametrize(
    ("before", "after", "stored"),
    [
        ("abcdef", "cdefg", 1),
        ("abcdef", "Sefg", 2),
        ("abcdef", "abdef", 0),
        ("abcdef", "abXdef", 1),
        ("abcdef", "ab", 0),
        ("abcdef", "", 0),
        ("aabbaa", "abaab", 1),
        ("abc", "XYabc", 5),
        ("abc", "cba", 3),
    ],
)
def test_what_stays_is_not_stored_again(
    chat: Transcript, open_store: Opener, before: str, after: str, stored: int
) -> None:
    chat.save(list(before))
    head = chat.head()
    chat.save(list(after))

    written = {one.path[0] for one in chat.timeline().diff(head) if one.kind != "removed"}
    assert len([one for one in written if isinstance(one, int)]) <= stored
    assert chat.items() == Transcript("chat", open_store()).items() == list(after)
    chat.append(["more"])
    assert chat.items() == Transcript("chat", open_store()).items() == [*after, "more"]


def test_what_others_added_is_not_dropped(chat: Transcript, open_store: Opener) -> None:
    chat.save(numbered(2))
    other = Transcript("chat", open_store())
    other.append([ANSWER])

    with pytest.raises(RefMoved):
        chat.save([*numbered(2), USER])
    assert chat.items() == [*numbered(2), ANSWER]
    chat.save([*numbered(2), ANSWER, USER])
    assert other.items() == [*numbered(2), ANSWER, USER]


def test_what_was_never_read_is_not_dropped(chat: Transcript, open_store: Opener) -> None:
    chat.append(numbered(2), {"n": 1})

    with pytest.raises(RefMoved):
        Transcript("chat", open_store()).save([USER])
    with pytest.raises(RefMoved):
        Transcript("chat", open_store()).save(numbered(3), {"n": 2})
    Transcript("chat", open_store()).save(numbered(3))
    assert chat.items() == numbered(3)


# Several writers.


def test_a_writer_that_expects_another_head_is_refused(
    chat: Transcript, open_store: Opener
) -> None:
    empty = chat.head()
    head = chat.append([USER], expect=empty)
    other = Transcript("chat", open_store())
    assert other.append([ANSWER], expect=head) == chat.head()

    for change in (
        lambda: chat.append([USER], expect=head),
        lambda: chat.append([USER], expect=empty),
        lambda: chat.save([], expect=head),
        lambda: chat.pop(expect=head),
        lambda: chat.put_state(1, expect=head),
    ):
        with pytest.raises(Conflict):
            change()
    assert chat.read()[:2] == ([USER, ANSWER], None)
    with pytest.raises(InvalidInput, match="expect"):
        chat.append([USER], expect="what?")


def test_appends_of_several_threads_are_all_there(open_store: Opener) -> None:
    threads = ThreadCheckpointer[Any](open_store())

    async def write() -> None:
        writers = [Transcript("chat", threads) for _ in range(5)]
        await asyncio.gather(
            *(
                writer.aappend([[n, turn, 0], [n, turn, 1]])
                for n, writer in enumerate(writers)
                for turn in range(6)
            )
        )

    asyncio.run(write())
    found = Transcript("chat", open_store()).items()
    pairs = list(zip(found[::2], found[1::2], strict=True))

    assert all(one[:2] == two[:2] and (one[2], two[2]) == (0, 1) for one, two in pairs)
    assert sorted(one[:2] for one, _ in pairs) == [[n, turn] for n in range(5) for turn in range(6)]


def test_a_write_is_finished_although_its_task_is_cancelled(chat: Transcript) -> None:
    async def write() -> None:
        task = asyncio.ensure_future(chat.aappend([USER], {"n": 1}))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(wait_until, lambda: chat.count() > 0)

    asyncio.run(write())
    assert chat.read()[:2] == ([USER], {"n": 1})


# Removing and going back.


def test_the_last_items_can_be_taken_back(chat: Transcript, open_store: Opener) -> None:
    chat.append(numbered(5))

    assert chat.pop() == numbered(5)[4:]
    assert chat.pop(2) == numbered(5)[2:4]
    chat.append([USER])
    assert chat.items() == Transcript("chat", open_store()).items() == [*numbered(2), USER]
    assert chat.pop(10) == [*numbered(2), USER]
    assert chat.pop() == []
    with pytest.raises(InvalidInput):
        chat.pop(0)


def test_an_emptied_one_can_be_used_again(chat: Transcript) -> None:
    chat.append([USER], {"n": 1})

    assert chat.clear() is True
    assert chat.read()[:2] == ([], None)
    assert chat.clear() is False
    assert chat.threads.list_threads() == []
    chat.append([ANSWER])
    assert chat.items() == [ANSWER]
    chat.rollback(to=1)
    assert chat.read()[:2] == ([USER], {"n": 1})


def test_a_fork_begins_at_a_turn_and_goes_its_own_way(chat: Transcript) -> None:
    chat.append([USER], {"n": 1})
    second = chat.append([ANSWER])
    chat.append([USER])
    fork = chat.fork("other", at=2)
    fork.append(["fork"])

    assert fork.items() == [USER, ANSWER, "fork"]
    assert fork.state() == {"n": 1}
    assert chat.items() == [USER, ANSWER, USER]
    assert chat.fork("third", at=second, user_id="alice").items() == [USER, ANSWER]
    assert [turn.number for turn in fork.turns()] == [3, 2, 1]
    with pytest.raises(Conflict):
        chat.fork("other")
    with pytest.raises(NotFound):
        chat.fork("fourth", at=9)
    with pytest.raises(NotFound):
        Transcript("nothing", chat.threads).fork("fourth")


def test_going_back_keeps_what_was_there(chat: Transcript, open_store: Opener) -> None:
    chat.append([USER])
    chat.append([ANSWER])
    other = Transcript("chat", open_store())
    assert other.items() == [USER, ANSWER]
    chat.rollback()

    assert chat.items() == other.items() == [USER]
    chat.timeline().undo()
    assert chat.items() == other.items() == [USER, ANSWER]
    chat.rollback(to=1)
    chat.append(["again"])
    assert chat.items() == other.items() == [USER, "again"]


# As messages.


def test_items_of_the_common_shapes_are_shown_as_messages(chat: Transcript) -> None:
    use = {"type": "tool_use", "id": "c2", "name": "find", "input": {"q": 1}}
    result = {"type": "tool_result", "tool_use_id": "c2", "content": "found"}
    call = {"id": "c", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    text = {"type": "output_text", "text": "item"}
    chat.append(
        [
            {"role": "user", "content": "chat"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "sunny", "tool_call_id": "c", "id": None},
            {"type": "message", "id": "m", "role": "assistant", "content": [text]},
            {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "seen"},
            {"role": "assistant", "content": [{"type": "text", "text": "blocks"}, use]},
            {"role": "user", "content": [result]},
            {"type": "user", "uuid": "u", "message": {"role": "user", "content": "inner"}},
            {"type": "UserMessage", "content": "guessed", "source": "bob"},
            7,
        ]
    )
    found = chat.threads.list_messages({"thread_id": "chat"})

    assert [(one.role, one.text) for one in found] == [
        ("user", "chat"),
        ("assistant", ""),
        ("tool", "sunny"),
        ("assistant", "item"),
        ("assistant", ""),
        ("tool", "seen"),
        ("assistant", "blocks"),
        ("user", "found"),
        ("user", "inner"),
        ("user", "guessed"),
        ("assistant", ""),
    ]
    assert [call.name for one in found for call in one.tool_calls] == ["find", "look"]
    assert [one.id for one in found] == list(range(11))
    assert chat.threads.get_message({"thread_id": "chat"}, 3).text == "item"
    assert chat.threads.list_messages({"thread_id": "chat"}, "GUESS")[0].id == 9


def test_a_shape_says_how_items_are_read(chat: Transcript, open_store: Opener) -> None:
    @shape("test-shape")
    def read(item: Any) -> Any:
        return {"role": "user", "content": item["said"]}

    Transcript("shaped", open_store(), shape="test-shape").append([{"said": "so"}, {"n": 1}])
    found = ThreadCheckpointer[Any](open_store()).list_messages({"thread_id": "shaped"})

    assert [(one.role, one.text) for one in found] == [("user", "so"), ("assistant", "")]


def test_a_conversation_of_messages_can_be_read_as_items(chat: Transcript) -> None:
    chat.threads.put_messages({"thread_id": "chat"}, [USER])
    chat.append([ANSWER])
    chat.threads.put_messages({"thread_id": "chat"}, [{**USER, "id": "m"}])

    assert chat.items() == [USER, ANSWER, {**USER, "id": "m"}]
    assert len(chat.threads.list_messages({"thread_id": "chat"})) == 3


def test_the_store_is_sound_afterwards(chat: Transcript, open_store: Opener) -> None:
    for turn in range(40):
        chat.save([*numbered(turn), "x" * 3_000], {"turn": turn})
    chat.fork("other", at=5)

    report = open_store().check(read_data=True)
    assert report.ok, report.problems


def test_items_of_idle_conversations_are_let_go(store: Store) -> None:
    threads = ThreadCheckpointer[Any](store)
    threads._budget = CacheBudget(20_000)
    chats = [Transcript(f"chat-{n}", threads) for n in range(5)]
    for chat in chats:
        chat.append(["x" * 1_000] * 8)
        assert len(chat.items()) == 8

    assert threads._budget.held <= 20_000
    assert [len(chat.items()) for chat in chats] == [8] * 5


def test_what_another_adapter_wrote_is_refused_and_left_as_it_is(open_store: Opener) -> None:
    store = open_store()
    Transcript("chat", store, shape="one").append([{"said": "so"}])
    other = Transcript("chat", store, shape="two")

    for use in (other.items, other.read, lambda: other.append([{"n": 1}]), lambda: other.save([])):
        with pytest.raises(InvalidInput, match="written by the adapter 'one'"):
            use()

    assert Transcript("chat", store).items() == [{"said": "so"}]
