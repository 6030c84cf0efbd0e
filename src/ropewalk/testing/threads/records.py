"""Records of threads, lists of them, and the configs that name them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ropewalk.errors import InvalidInput
from ropewalk.testing.threads.faces import (
    T1,
    T2,
    Base,
    Face,
    Faces,
    commits,
    each,
    everything,
    ids,
    numbered,
    said,
)
from ropewalk.threads import ThreadInfo

YEARS = [datetime(2020 + year, 1, 1, tzinfo=UTC) for year in range(3)]


def names(threads: list[ThreadInfo]) -> list[Any]:
    """The ids of threads."""
    return [one.thread_id for one in threads]


class RecordContract(Base):
    """put_thread, get_thread, list_threads, clean_thread."""

    def test_a_thread_that_was_never_put_has_no_record(self, chat: Face) -> None:
        assert chat.get_thread(T1) is None

    def test_a_record_comes_back(self, chat: Face, opened: Faces) -> None:
        info = ThreadInfo("t1", "Name", None, {"deep": [{"a": 1}]}, YEARS[0], YEARS[1])

        assert chat.put_thread(T1, info) is True

        for found in (chat.get_thread(T1), opened().get_thread(T1)):
            assert type(found) is ThreadInfo
            assert found == info

    def test_a_dict_is_a_record_and_needs_no_thread_id(self, chat: Face) -> None:
        chat.put_thread(T1, {"thread_name": "Name", "metadata": {"a": 1}})

        found = chat.get_thread(T1)
        assert (found.thread_id, found.thread_name, found.metadata) == ("t1", "Name", {"a": 1})

    def test_a_record_says_whose_thread_it_is(self, chat: Face) -> None:
        config = {"thread_id": "t1", "user_id": "ann"}
        chat.put_thread(config, {"thread_name": "Name"})

        assert chat.get_thread(config).user_id == "ann"
        assert chat.list_threads(config)[0].user_id == "ann"

    def test_the_times_of_a_record_are_set_when_it_is_put(self, chat: Face) -> None:
        before = datetime.now(UTC)
        chat.put_thread(T1, {"thread_name": "first"})
        first = chat.get_thread(T1)
        chat.put_thread(T1, {"thread_name": "second"})
        second = chat.get_thread(T1)
        after = datetime.now(UTC)

        slack = timedelta(seconds=1)  # Clocks may differ in resolution.
        for moment in (first.created_at, first.updated_at, second.updated_at):
            assert before - slack <= moment <= after + slack
        assert second.created_at == first.created_at
        assert second.updated_at >= first.updated_at

    def test_a_time_of_change_that_was_given_holds_until_the_next_change(self, chat: Face) -> None:
        given = datetime(2020, 1, 1, tzinfo=UTC)
        chat.put_thread(T1, {"thread_name": "Name", "updated_at": given})
        first = chat.get_thread(T1).updated_at
        chat.put_messages(T1, said("a"))
        read = chat.get_thread(T1)
        chat.put_thread(T1, read.replace(thread_name="Other"))
        chat.put_messages(T1, said("b", first=1))

        assert first == given
        assert read.updated_at > given
        assert chat.get_thread(T1).updated_at > read.updated_at
        assert chat.list_threads({})[0].updated_at == chat.get_thread(T1).updated_at

    def test_the_newest_record_counts_and_the_ones_before_stay_in_history(self, chat: Face) -> None:
        chat.put_thread(T1, {"thread_name": "first", "metadata": {"a": 1}})
        chat.put_thread(T1, {"thread_name": "second"})

        assert chat.get_thread(T1).thread_name == "second"
        assert chat.get_thread(T1).metadata == {}
        chat.timeline(T1).rollback()
        assert chat.get_thread(T1).thread_name == "first"

    @pytest.mark.parametrize("what", ["state", "messages"])
    def test_a_thread_without_a_record_is_known_too(self, chat: Face, what: str) -> None:
        chat.put(T1, **{what: said("a")})

        found = chat.get_thread(T1)
        assert (found.thread_id, found.thread_name, found.metadata) == ("t1", None, {})
        assert found.updated_at is not None
        assert names(chat.list_threads({})) == ["t1"]

    def test_the_record_of_thread_1_is_not_that_of_thread_text_1(self, chat: Face) -> None:
        with pytest.raises(InvalidInput):
            chat.put_thread({"thread_id": 1}, ThreadInfo("1"))
        chat.put_thread({"thread_id": 1}, ThreadInfo(1, "whole"))
        chat.put_thread({"thread_id": "1"}, ThreadInfo("1", "text"))

        assert chat.get_thread({"thread_id": 1}).thread_name == "whole"
        assert chat.get_thread({"thread_id": "1"}).thread_name == "text"

    # Lists.

    def test_a_list_needs_no_thread_id(self, chat: Face) -> None:
        assert chat.list_threads({}) == []
        chat.put_state(T1, 1)
        chat.put_state(T2, 1)

        for config in ({}, None, T1, {"user_id": None}):
            with each(config):
                assert sorted(names(chat.list_threads(config))) == ["t1", "t2"]

    def test_the_latest_changed_is_the_first(self, chat: Face, opened: Faces) -> None:
        other = opened()
        for number in range(5):
            (chat, other)[number % 2].put_thread({"thread_id": number}, {})
        chat.put_messages({"thread_id": 1}, said("a"))
        other.put_state({"thread_id": 3}, 1)

        assert names(chat.list_threads({})) == [3, 1, 4, 2, 0]
        assert names(other.list_threads({})) == [3, 1, 4, 2, 0]

    def test_offset_limit_and_cursor_lead_through_a_list(self, chat: Face) -> None:
        for number in range(7):
            chat.put_state({"thread_id": number}, number)
        order = list(range(6, -1, -1))

        for offset in (None, 0, 2, 6, 7, 9):
            for limit in (None, 0, 1, 3, 7, 9):
                wanted = order[offset or 0 :]
                page = chat.list_threads({}, None, offset, limit)
                assert names(page) == (wanted if limit is None else wanted[:limit])
        found, cursor = [], None
        while True:
            page = chat.list_threads({}, limit=3, cursor=cursor)
            found.append(names(page))
            cursor = page.cursor
            if cursor is None:
                break
        assert found == [[6, 5, 4], [3, 2, 1], [0]]

    def test_a_cursor_repeats_no_thread_whatever_happens_meanwhile(self, chat: Face) -> None:
        for number in range(7):
            chat.put_state({"thread_id": number}, number)
        page = chat.list_threads({}, limit=3)
        chat.put_state({"thread_id": "new"}, 1)
        chat.put_state({"thread_id": 5}, "changed")
        chat.clean_thread({"thread_id": 4})
        chat.clean_thread({"thread_id": 2})

        assert names(page) == [6, 5, 4]
        assert names(chat.list_threads({}, limit=9, cursor=page.cursor)) == [3, 1, 0]

    def test_a_search_looks_at_ids_names_and_what_metadata_say(self, chat: Face) -> None:
        chat.put_thread({"thread_id": "late-parcel"}, {})
        chat.put_thread({"thread_id": "b"}, {"thread_name": "The LATE train"})
        chat.put_thread({"thread_id": "c"}, {"metadata": {"tags": ["new", {"x": "Latest"}]}})
        chat.put_thread({"thread_id": "d"}, {"metadata": {"late": "key"}, "thread_name": "early"})

        assert names(chat.list_threads({}, "late")) == ["c", "b", "late-parcel"]
        assert names(chat.list_threads({}, "ATE tr")) == ["b"]
        assert names(chat.list_threads({}, "metadata")) == []
        assert names(chat.list_threads({}, "late", offset=1, limit=1)) == ["b"]
        first = chat.list_threads({}, "late", limit=2)
        assert names(chat.list_threads({}, "late", limit=2, cursor=first.cursor)) == ["late-parcel"]

    def test_threads_of_all_users_are_listed_where_that_is_asked_for(self, chat: Face) -> None:
        users = (None, "ann", "bob", 7)
        for user in users:
            named = {} if user is None else {"user_id": user}
            chat.put_thread({"thread_id": "t", **named}, {"thread_name": f"of {user}"})
            chat.put_state({"thread_id": "u", **named}, 1)

        listed = chat.list_threads({}, all_users=True)
        assert [(one.thread_id, one.user_id) for one in listed] == [
            (thread, user) for user in reversed(users) for thread in ("u", "t")
        ]
        found = chat.list_threads({"user_id": "ann"}, "of ", all_users=True, limit=3)
        rest = chat.list_threads({}, "of ", all_users=True, cursor=found.cursor)
        assert [one.user_id for one in (*found, *rest)] == list(reversed(users))
        assert names(chat.list_threads({})) == ["u", "t"]

    def test_metadata_narrow_a_list_down(self, chat: Face) -> None:
        for number in range(4):
            chat.put_thread({"thread_id": number}, {"metadata": {"even": number % 2 == 0, "x": 1}})
        chat.put_state({"thread_id": "without"}, 1)

        assert names(chat.list_threads({}, metadata={"even": True})) == [2, 0]
        assert names(chat.list_threads({}, metadata={"even": True, "x": 2})) == []

    # Emptying a thread.

    def test_a_cleaned_thread_is_empty_and_others_stay(self, chat: Face, opened: Faces) -> None:
        for config in (T1, T2, {**T1, "user_id": "ann"}):
            chat.put(config, {"step": 1}, numbered(140), {"thread_name": "Name"})
            chat.put_state_cache(config, "cached")

        assert chat.clean_thread(T1) is True

        for one in (chat, opened()):
            assert everything(one) == (None, None, [], None)
            assert names(one.list_threads({})) == ["t2"]
            assert one.list_messages(T1, "number") == []
            with pytest.raises(IndexError):
                one.get_message(T1, "m5")
            with pytest.raises(IndexError):
                one.get_message(T1)
        for config in (T2, {**T1, "user_id": "ann"}):
            assert chat.get_state(config) == {"step": 1}
            assert chat.get_state_cache(config) == "cached"
            assert len(chat.list_messages(config, "number")) == 140

    def test_cleaning_says_whether_there_was_anything(self, chat: Face) -> None:
        assert chat.clean_thread(T1) is False
        chat.put_messages(T1, said("a"))
        assert chat.clean_thread(T1) is True
        assert chat.clean_thread(T1) is False

        assert commits(chat) == 2

    def test_a_cleaned_thread_begins_anew(self, chat: Face) -> None:
        chat.put(T1, 1, numbered(140))
        chat.clean_thread(T1)
        chat.put_messages(T1, said("again", first=7))
        chat.put_state(T1, 2)

        assert ids(chat.list_messages(T1)) == ["m7"]
        assert chat.get_message(T1, "m7").text == "again"
        assert chat.get_state(T1) == 2
        assert names(chat.list_threads({})) == ["t1"]

    def test_cleaning_can_be_undone(self, chat: Face) -> None:
        chat.put(T1, {"step": 1}, numbered(140), {"thread_name": "Name"})
        before = everything(chat)
        chat.clean_thread(T1)
        chat.timeline(T1).rollback()

        assert everything(chat) == before
        assert ids(chat.list_messages(T1, "139")) == ["m139"]
        assert chat.get_message(T1, "m77").text == "number 77"


USERS: list[Any] = [
    None, "ann", "Ann", "an", "ann/t1", 1, "1", "#1", -1, "None", "threads", "ann:", "\u00e4",
    "a\u0308", "main", 0, "%41nn",
]  # fmt: skip
THREADS: list[Any] = [
    0, 1, "1", "0", -7, "#1", "##1", "#", "None", "a/b", "a b", "K\u00e4se", "\U0001f9c0", "main",
    "branch", "t" * 100, 2**80, "%41", "A", "a",
]  # fmt: skip


class ConfigContract(Base):
    """What `config` means."""

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
