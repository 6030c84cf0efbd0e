"""The state cache: fast, for a time, allowed to be lost, and never hiding a newer state."""

from __future__ import annotations

import time

import pytest

from ropewalk.errors import InvalidInput, NotStorable
from ropewalk.testing._threads._base import T1, T2, Base, Face, Faces, commits, each, said
from ropewalk.testing._threads._states import Unknown, Work
from ropewalk.testing.helpers import PATIENCE
from ropewalk.threads import ThreadCheckpointer


class CacheContract(Base):
    """put_state_cache, get_state_cache."""

    def test_nothing_is_cached_at_first(self, chat: Face) -> None:
        assert chat.get_state_cache(T1) is None

        chat.put_state(T1, {"step": 1})
        assert chat.get_state_cache(T1) is None

    def test_a_cached_state_comes_back(self, chat: Face) -> None:
        state = {"step": 1, "many": list(range(10_000))}

        assert chat.put_state_cache(T1, state) is state

        assert chat.get_state_cache(T1) == state
        assert chat.get_state_cache(T2) is None
        chat.put_state_cache(T1, {"step": 2})
        assert chat.get_state_cache(T1) == {"step": 2}

    def test_a_cached_state_of_a_declared_class_comes_back_as_one(self, opened: Faces) -> None:
        chat = opened(types=[Work])
        chat.put_state_cache(T1, Work(3, ["a"]))

        assert chat.get_state_cache(T1) == Work(3, ["a"])

    def test_caching_makes_no_commit_and_no_thread(self, chat: Face) -> None:
        chat.put_state_cache(T1, {"step": 1})

        assert chat.get_state(T1) is None
        assert chat.get_thread(T1) is None
        assert chat.list_threads({}) == []
        assert commits(chat) == 0

    def test_other_checkpointers_see_it_where_the_store_shares_it(
        self, chat: Face, opened: Faces
    ) -> None:
        chat.put_state_cache(T1, {"step": 1})

        found = opened().get_state_cache(T1)

        assert found == {"step": 1} or (found is None and not self.shares_cache)

    def test_a_state_that_was_put_later_wins(self, chat: Face) -> None:
        chat.put_state_cache(T1, {"step": "cached"})
        chat.put_state(T1, {"step": "stored"})

        assert chat.get_state_cache(T1) is None
        chat.put_state_cache(T1, {"step": "cached later"})
        assert chat.get_state_cache(T1) == {"step": "cached later"}

    def test_a_state_that_was_put_elsewhere_wins(self, chat: Face, opened: Faces) -> None:
        chat.put_state(T1, 1)
        chat.put_state_cache(T1, "cached")
        opened().put_state(T1, 1)

        assert chat.get_state_cache(T1) is None

    def test_messages_and_records_do_not_end_what_is_cached(self, chat: Face) -> None:
        chat.put_state(T1, 1)
        chat.put_state_cache(T1, {"step": "cached"})
        chat.put_messages(T1, said("a", "b"))
        chat.delete_message(T1, "m0")
        chat.put_thread(T1, {"thread_name": "Name"})

        assert chat.get_state_cache(T1) == {"step": "cached"}

    def test_putting_all_at_once_ends_what_is_cached(self, chat: Face) -> None:
        chat.put_state_cache(T1, "cached")
        chat.put(T1, {"step": 1}, said("a"))

        assert chat.get_state_cache(T1) is None

    def test_clearing_the_state_clears_the_cache(self, chat: Face) -> None:
        chat.put_state_cache(T1, "only cached")
        chat.clear_state(T1)
        assert chat.get_state_cache(T1) is None

        chat.put_state(T1, 1)
        chat.put_state_cache(T1, "cached")
        chat.clear_state(T1)
        assert chat.get_state_cache(T1) is None

    def test_cleaning_the_thread_clears_the_cache(self, chat: Face) -> None:
        chat.put_state_cache(T1, "only cached")
        chat.clean_thread(T1)
        assert chat.get_state_cache(T1) is None

        chat.put_messages(T1, said("a"))
        chat.put_state_cache(T1, "cached")
        chat.clean_thread(T1)
        assert chat.get_state_cache(T1) is None

    def test_after_a_rollback_what_was_cached_for_a_later_state_is_not_shown(
        self, chat: Face
    ) -> None:
        chat.put_state(T1, 1)
        chat.put_state(T1, 2)
        chat.put_state_cache(T1, "cached after 2")
        chat.timeline(T1).rollback()

        assert chat.get_state_cache(T1) is None
        chat.put_state(T1, 2)
        assert chat.get_state_cache(T1) is None, "an equal state is another one"

    def test_branches_have_caches_of_their_own(self, chat: Face, opened: Faces) -> None:
        chat.put_state(T1, 1)
        chat.put_state_cache(T1, "on main")
        chat.timeline(T1).branch("other")

        assert chat.get_state_cache(T1) is None
        chat.put_state_cache(T1, "on other")
        assert chat.get_state_cache(T1) == "on other"
        assert chat.get_state_cache({**T1, "branch": "main"}) == "on main"
        if self.shares_cache:
            assert opened().get_state_cache(T1) == "on other"

    def test_it_ends_when_its_time_is_over(self, opened: Faces) -> None:
        chat = opened(cache_seconds=0.05)
        chat.put_state(T1, "stored")
        chat.put_state_cache(T1, "cached")

        until = time.monotonic() + PATIENCE
        while chat.get_state_cache(T1) is not None:
            assert time.monotonic() < until
            time.sleep(0.01)
        assert chat.get_state(T1) == "stored"
        assert chat.get_state_cache(T1) is None

    def test_without_a_time_it_stays(self, opened: Faces) -> None:
        chat = opened(cache_seconds=None)
        chat.put_state_cache(T1, "cached")

        assert chat.get_state_cache(T1) == "cached"

    def test_a_time_that_is_none_is_refused(self, chat: Face) -> None:
        for seconds in (0, -1, float("nan"), "day", True):
            with each(seconds), pytest.raises(InvalidInput, match="cache_seconds"):
                ThreadCheckpointer[int](chat.store, cache_seconds=seconds)  # type: ignore[arg-type]

    def test_what_cannot_be_stored_is_refused_and_nothing_changes(self, chat: Face) -> None:
        chat.put_state_cache(T1, "cached")

        with pytest.raises(NotStorable):
            chat.put_state_cache(T1, {"deep": Unknown()})
        assert chat.get_state_cache(T1) == "cached"

    def test_it_may_be_lost_at_any_moment(self, chat: Face) -> None:
        chat.put_state(T1, "stored")
        chat.put_state_cache(T1, "cached")
        scratch = chat.store.scratch()
        for key in scratch.keys(""):
            scratch.remove(key)

        assert chat.get_state_cache(T1) is None
        assert chat.get_state(T1) == "stored"
