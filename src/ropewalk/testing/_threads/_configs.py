"""Which thread a call is about, and whose: nobody sees what is another's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ropewalk.errors import InvalidInput, NotFound
from ropewalk.testing._threads._base import T1, Base, Face, each, everything, numbered, said

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
USERS: list[Any] = [
    None, "ann", "Ann", "an", "ann/t1", 1, "1", "#1", -1, "None", "threads", "ann:", "\u00e4",
    "a\u0308", "main", 0, "%41nn",
]  # fmt: skip
THREADS: list[Any] = [
    0, 1, "1", "0", -7, "#1", "##1", "#", "None", "a/b", "a b", "K\u00e4se", "\U0001f9c0", "main",
    "branch", "t" * 100, 2**80, "%41", "A", "a",
]  # fmt: skip


class ConfigContract(Base):
    """What `config` says."""

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

    def test_every_thread_id_is_a_thread_of_its_own(self, chat: Face) -> None:
        for number, id in enumerate(THREADS):
            chat.put({"thread_id": id}, number, said(f"{id!r}"), {"thread_name": f"{id!r}"})

        for number, id in enumerate(THREADS):
            assert chat.get_state({"thread_id": id}) == number
            assert chat.get_message({"thread_id": id}).text == repr(id)
        listed = chat.list_threads({})[::-1]
        assert [(one.thread_id, type(one.thread_id)) for one in listed] == [
            (id, type(id)) for id in THREADS
        ]
        assert [one.thread_name for one in listed] == [repr(id) for id in THREADS]

    def test_no_user_sees_what_is_anothers(self, chat: Face) -> None:
        configs = [{"thread_id": "t", "user_id": user} for user in USERS]
        for number, config in enumerate(configs):
            assert everything(chat, config) == (None, None, [], None)
            chat.put(config, number, said(f"word {number}"), {"thread_name": f"{number}"})
            chat.put_state_cache(config, [number])

        for number, config in enumerate(configs):
            assert chat.get_state(config) == number
            assert chat.get_state_cache(config) == [number]
            assert chat.get_message(config, "m0").text == f"word {number}"
            assert len(chat.list_messages(config, "word")) == 1
            (listed,) = chat.list_threads({"user_id": USERS[number]})
            assert (listed.thread_name, listed.user_id) == (f"{number}", USERS[number])

    def test_what_one_user_does_changes_nothing_of_anothers(self, chat: Face) -> None:
        ann, bob = {"thread_id": "t", "user_id": "ann"}, {"thread_id": "t", "user_id": "bob"}
        for config in (ann, bob):
            chat.put(config, 1, numbered(3), {"thread_name": "Name"})
            chat.put_state_cache(config, "cached")
        before = everything(chat, bob)

        chat.delete_message(ann, "m0")
        chat.put_messages(ann, said("edited", first=1))
        chat.put_thread(ann, {"thread_name": "Other"})
        chat.clear_state(ann)
        chat.timeline(ann).rollback(2)
        chat.clean_thread(ann)

        assert everything(chat, bob) == before
        assert chat.list_threads({"user_id": "ann"}) == []

    def test_a_branch_that_is_not_there_is_an_error(self, chat: Face) -> None:
        chat.put_state(T1, 1)

        for name in ("get_state", "put_state", "list_messages", "get_thread", "clean_thread"):
            with pytest.raises(NotFound, match="absent"):
                CALLS[name](chat, {**T1, "branch": "absent"})
