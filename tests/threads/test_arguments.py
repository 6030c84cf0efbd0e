"""What a checkpointer takes and refuses, gives back and lets go: no store has a part in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from itertools import product
from typing import Any

import pytest

from ropewalk.errors import InvalidInput, NotFound, NotStorable, StoreClosed
from ropewalk.store import MemoryStore
from ropewalk.testing.threads.faces import (
    T1,
    T2,
    Base,
    Face,
    Opener,
    commits,
    each,
    everything,
    numbered,
    said,
    texts,
)
from ropewalk.testing.threads.states import Unknown
from ropewalk.threads import Message, ThreadCheckpointer, ThreadInfo
from ropewalk.threads.listing import make_cursor

NONE: list[Any] = [
    None,
    5,
    "text",
    {"role": "user", "content": "one"},
    Message("user", "one"),
    ["text"],
    [None],
    [{"content": "no role"}],
    [{"role": "nobody", "content": "x"}],
    [{"role": "user", "content": "x", "id": True}],
    [{"role": "user", "content": "x", "id": 1.5}],
    [{"role": "user", "content": "x", "id": "x" * 100_000}],
    [{"role": "user", "content": "x", "id": 10**5000}],
    [{"role": "user", "content": 5}],
]
NO_FILTERS: list[dict[str, Any]] = [
    {"role": "nobody"},
    {"role": 5},
    {"role": [5]},
    {"role": [["user"]]},
    {"role": ["nobody", 5]},
    {"since": "2026-01-01"},
    {"until": datetime(2026, 1, 1)},
    {"metadata": "channel"},
    {"search": 5},
    {"search": b"text"},
]
NO_RECORDS: list[Any] = [
    ThreadInfo("t2"),
    ThreadInfo("t1", user_id="ann"),
    {"thread_id": "t2"},
    {"user_id": "ann"},
    {"thread_name": 5},
    {"unheard_of": 1},
    {"metadata": "text"},
    {"updated_at": "yesterday"},
    "Name",
    None,
    5,
]
NO_LISTS: list[dict[str, Any]] = [
    {"limit": -1},
    {"offset": -1},
    {"limit": True},
    {"limit": "1"},
    {"search": 5},
    {"metadata": "text"},
    {"cursor": "x"},
    {"cursor": 5},
]
CALLS: dict[str, Callable[[Face, Any], Any]] = {
    "put_state": lambda chat, config: chat.put_state(config, 1),
    "get_state": lambda chat, config: chat.get_state(config),
    "clear_state": lambda chat, config: chat.clear_state(config),
    "put_state_cache": lambda chat, config: chat.put_state_cache(config, 1),
    "get_state_cache": lambda chat, config: chat.get_state_cache(config),
    "put_messages": lambda chat, config: chat.put_messages(config, said("a")),
    "get_message": lambda chat, config: chat.get_message(config, "m0"),
    "latest message": lambda chat, config: chat.get_message(config),
    "list_messages": lambda chat, config: chat.list_messages(config),
    "search": lambda chat, config: chat.list_messages(config, "a"),
    "delete_message": lambda chat, config: chat.delete_message(config, "m0"),
    "put_thread": lambda chat, config: chat.put_thread(config, {}),
    "get_thread": lambda chat, config: chat.get_thread(config),
    "clean_thread": lambda chat, config: chat.clean_thread(config),
    "put": lambda chat, config: chat.put(config, 1, said("a"), {}),
    "timeline": lambda chat, config: chat.timeline(config),
}
CONFIGS: list[Any] = [
    None, "t1", [("thread_id", "t1")], {}, {"thread_id": None}, {"user_id": "ann"},
    {"thread_id": ""}, {"thread_id": True}, {"thread_id": 1.5}, {"thread_id": b"t1"},
    {"thread_id": ["t1"]}, {"thread_id": "../t1"}, {"thread_id": "a/../t1"}, {"thread_id": "/t1"},
    {"thread_id": "a\\..\\b"}, {"thread_id": "."}, {"thread_id": ".."}, {"thread_id": "a\0b"},
    {"thread_id": "a\nb"}, {"thread_id": "\ud800"}, {"thread_id": "x" * 5000},
    {"thread_id": 10**5000}, {"thread_id": "t1", "user_id": ""},
    {"thread_id": "t1", "user_id": 2.5},
    {"thread_id": "t1", "user_id": False}, {"thread_id": "t1", "user_id": "../ann"},
    {"thread_id": "t1", "user_id": "a\0b"}, {"thread_id": "t1", "user_id": "\ud800"},
    {"thread_id": "t1", "user_id": "u" * 5000}, {"thread_id": "t1", "branch": 5},
    {"thread_id": "t1", "branch": ""},
]  # fmt: skip
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


class OnMemory(Base):
    @pytest.fixture
    def open_checkpointer(self) -> Opener:
        memory = MemoryStore()

        def open_one(**options: Any) -> ThreadCheckpointer[Any]:
            return ThreadCheckpointer(memory.another(), **options)

        return open_one


class TestStates(OnMemory):
    def test_a_state_that_cannot_be_stored_is_refused_and_nothing_changes(self, chat: Face) -> None:
        chat.put_state(T1, {"step": 1})
        before = everything(chat), commits(chat)

        for state in (Unknown(), {"deep": [Unknown()]}, lambda: None, object):
            with each(state), pytest.raises(NotStorable):
                chat.put_state(T1, state)
            assert (everything(chat), commits(chat)) == before
        chat.put_state(T1, {"step": 2})
        assert chat.get_state(T1) == {"step": 2}

    def test_a_state_that_holds_itself_is_refused(self, chat: Face) -> None:
        state: dict[str, Any] = {}
        state["self"] = state

        with pytest.raises(InvalidInput):
            chat.put_state(T1, state)
        assert chat.get_state(T1) is None


class TestCache(OnMemory):
    def test_a_time_that_is_none_is_refused(self, chat: Face) -> None:
        for seconds in (0, -1, float("nan"), "day", True):
            with each(seconds), pytest.raises(InvalidInput, match="cache_seconds"):
                ThreadCheckpointer[int](chat.store, cache_seconds=seconds)  # type: ignore[arg-type]

    def test_what_cannot_be_stored_is_refused_and_nothing_changes(self, chat: Face) -> None:
        chat.put_state_cache(T1, "cached")

        with pytest.raises(NotStorable):
            chat.put_state_cache(T1, {"deep": Unknown()})
        assert chat.get_state_cache(T1) == "cached"


class TestMessages(OnMemory):
    def test_openai_dicts_are_taken_and_given_back_without_loss(self, chat: Face) -> None:
        raw = {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "look", "arguments": '{"a": 1}'},
                }
            ],
            "unheard_of": [1, 2],
        }
        chat.put_messages(T1, [raw])

        assert chat.get_message(T1).to_openai() == raw

    def test_any_list_of_messages_is_taken(self, chat: Face) -> None:
        one, two = said("a", "b")
        for number, messages in enumerate([[one, two], (one, two), iter([one, two])]):
            chat.put_messages({"thread_id": number}, messages)

            assert texts(chat.list_messages({"thread_id": number})) == ["a", "b"]

    def test_what_are_no_messages_is_refused_and_nothing_changes(self, chat: Face) -> None:
        chat.put_messages(T1, said("a"))

        for messages in NONE:
            with each(messages), pytest.raises(InvalidInput):
                chat.put_messages(T1, messages)
        assert texts(chat.list_messages(T1)) == ["a"]
        assert commits(chat) == 1

    def test_the_same_id_twice_in_one_put_is_one_message_and_the_last_counts(
        self, chat: Face
    ) -> None:
        chat.put_messages(T1, [*said("first", "b"), *said("last")])

        assert texts(chat.list_messages(T1)) == ["last", "b"]

    def test_an_edit_and_its_reverse_in_one_put_change_nothing(self, chat: Face) -> None:
        chat.put_messages(T1, said("as it was"))
        chat.put_messages(T1, [*said("edited"), *said("as it was")])

        assert texts(chat.list_messages(T1)) == ["as it was"]

    def test_an_edit_takes_the_place_of_the_whole_message(self, chat: Face) -> None:
        chat.put_messages(T1, [Message("user", "a", id="m", name="Ann", metadata={"x": 1})])
        chat.put_messages(T1, [Message("tool", "b", id="m")])

        found = chat.get_message(T1, "m")
        assert (found.role, found.text, found.name, found.metadata) == ("tool", "b", None, {})

    def test_what_can_be_no_id_is_refused(self, chat: Face) -> None:
        chat.put_messages(T1, [*said("a"), {"role": "user", "content": "1", "id": 1}])

        for id in (True, 1.5, b"m0", "", ["m0"], {"id": 1}, "\ud800", "x" * 4097, 10**200):
            with each(id), pytest.raises(InvalidInput):
                chat.get_message(T1, id)
            with each(id), pytest.raises(InvalidInput):
                chat.delete_message(T1, id)
        with pytest.raises(InvalidInput):
            chat.delete_message(T1, None)
        assert len(chat.list_messages(T1)) == 2

    def test_the_metadata_of_a_put_are_found_in_each_of_its_messages_beneath_their_own(
        self, chat: Face
    ) -> None:
        own = {"role": "user", "content": "a", "id": "a", "metadata": {"own": 1, "channel": "mine"}}
        chat.put_messages(T1, [own, *said("b")], {"channel": "web", "turn": [1]})
        chat.put_messages(T1, said("c", first=1), metadata={"channel": "mail"})

        wanted = [
            {"own": 1, "channel": "mine", "turn": [1]},
            {"channel": "web", "turn": [1]},
            {"channel": "mail"},
        ]
        assert [one.metadata for one in chat.list_messages(T1)] == wanted
        assert [chat.get_message(T1, id).metadata for id in ("a", "m0", "m1")] == wanted

    def test_metadata_that_are_no_dict_are_refused(self, chat: Face) -> None:
        for metadata in ("text", 5, [("a", 1)]):
            with pytest.raises(InvalidInput, match="metadata"):
                chat.put_messages(T1, said("a"), metadata)
        assert chat.list_messages(T1) == []


class TestPages(OnMemory):
    def test_what_is_no_count_is_refused(self, chat: Face) -> None:
        chat.put_messages(T1, numbered(3))

        for name, number in product(("offset", "limit"), (-1, 1.5, "1", True)):
            for options in ({}, {"search": "number"}, {"role": "user"}):
                with each((name, number)), pytest.raises(InvalidInput, match=name):
                    chat.list_messages(T1, **{name: number}, **options)

    def test_a_cursor_is_not_used_with_an_offset_or_in_the_other_order(self, chat: Face) -> None:
        chat.put_messages(T1, numbered(4))
        cursor = chat.list_messages(T1, limit=2).cursor

        with pytest.raises(InvalidInput, match="offset"):
            chat.list_messages(T1, offset=1, cursor=cursor)
        with pytest.raises(InvalidInput, match="newest_first"):
            chat.list_messages(T1, newest_first=True, cursor=cursor)

    def test_what_is_no_cursor_is_refused(self, chat: Face) -> None:
        chat.put_messages(T1, numbered(4))

        far = [make_cursor(position, False) for position in (-1, -(2**63), 2**63, 2**64 - 1)]
        for cursor in ("", "x", "AAAA", "\u00e9", 5, b"kgHC", ["x"], *far):
            with each(cursor), pytest.raises(InvalidInput, match="cursor"):
                chat.list_messages(T1, limit=2, cursor=cursor)
            with each(cursor), pytest.raises(InvalidInput, match="cursor"):
                chat.list_messages(T1, "number", limit=2, cursor=cursor)

    def test_a_cursor_of_threads_is_none_of_messages(self, chat: Face) -> None:
        for number in range(3):
            chat.put_messages({"thread_id": number}, numbered(3))
        of_threads = chat.list_threads({}, limit=1).cursor
        of_messages = chat.list_messages({"thread_id": 0}, limit=1).cursor

        with pytest.raises(InvalidInput, match="cursor"):
            chat.list_messages({"thread_id": 0}, cursor=of_threads)
        with pytest.raises(InvalidInput, match="cursor"):
            chat.list_threads({}, cursor=of_messages)

    def test_what_is_no_filter_is_refused(self, chat: Face) -> None:
        chat.put_messages(T1, numbered(3))

        for options in NO_FILTERS:
            with each(options), pytest.raises(InvalidInput):
                chat.list_messages(T1, **options)


class TestRecords(OnMemory):
    def test_a_record_that_does_not_fit_is_refused_and_nothing_changes(self, chat: Face) -> None:
        chat.put_thread(T1, {"thread_name": "Name"})
        before = everything(chat), commits(chat)

        for record in NO_RECORDS:
            with each(record), pytest.raises(InvalidInput):
                chat.put_thread(T1, record)
        assert (everything(chat), commits(chat)) == before
        assert chat.get_thread(T2) is None

    def test_a_record_that_cannot_be_stored_is_refused(self, chat: Face) -> None:
        with pytest.raises(NotStorable):
            chat.put_thread(T1, {"metadata": {"deep": [Unknown()]}})
        assert chat.get_thread(T1) is None

    def test_what_cannot_be_listed_is_refused(self, chat: Face) -> None:
        chat.put_state(T1, 1)

        for options in NO_LISTS:
            with each(options), pytest.raises(InvalidInput):
                chat.list_threads({}, **options)


class TestConfig(OnMemory):
    @pytest.mark.parametrize("name", CALLS)
    def test_a_config_that_names_no_thread_is_refused_by_every_method(
        self, chat: Face, name: str
    ) -> None:
        for number, config in enumerate(CONFIGS):
            with each(f"config {number}"), pytest.raises(InvalidInput) as caught:
                CALLS[name](chat, config)
            assert len(str(caught.value)) < 500
        assert chat.list_threads({}) == []

    def test_a_list_for_what_can_be_no_user_is_refused(self, chat: Face) -> None:
        for config in ("ann", 5, {"user_id": True}, {"user_id": ""}, {"user_id": "a\0"}):
            with each(config), pytest.raises(InvalidInput):
                chat.list_threads(config)

    def test_other_keys_of_a_config_do_not_matter(self, chat: Face) -> None:
        chat.put_state({**T1, "recursion_limit": 25, "run_id": object()}, 1)

        assert chat.get_state({**T1, "is_stream": True}) == 1

    def test_a_branch_that_is_not_there_is_an_error(self, chat: Face) -> None:
        chat.put_state(T1, 1)

        for name in ("get_state", "put_state", "list_messages", "get_thread", "clean_thread"):
            with pytest.raises(NotFound, match="absent"):
                CALLS[name](chat, {**T1, "branch": "absent"})


class TestTogether(OnMemory):
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


class TestLife(OnMemory):
    def test_setup_may_be_called_at_any_time_and_needs_not_be(self, chat: Face) -> None:
        assert chat.setup() is None
        chat.put_state(T1, 1)
        assert chat.setup() is None

        assert chat.get_state(T1) == 1

    def test_release_closes_what_it_opened(self, runner: asyncio.Runner | None) -> None:
        chat = Face(ThreadCheckpointer(), runner)
        chat.put_state(T1, 1)

        assert chat.release() is True
        assert chat.release() is True

        with pytest.raises(StoreClosed):
            chat.get_state(T1)
        with pytest.raises(StoreClosed):
            chat.put_state(T1, 1)

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
