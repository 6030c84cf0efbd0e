"""States of threads: stored, cached with an expiry, and never shared with the caller."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from ropewalk.errors import UndeclaredClass
from ropewalk.testing.helpers import PATIENCE
from ropewalk.testing.threads.faces import (
    T1,
    T2,
    Base,
    Face,
    Faces,
    commits,
    each,
    said,
)

STATES: list[Any] = [
    {"step": 1, "notes": ["a", {"b": (1, 2)}]},
    {},
    [],
    "",
    "text",
    0,
    False,
    3.5,
    b"\0bytes",
    {1, 2, 3},
    (1, (2, None)),
    {1: "whole", "1": "text"},
    {"at": datetime(2026, 1, 2, 3, 4, 5, 6, UTC), "price": Decimal("1.10")},
    {"long": "x" * 300_000, "many": list(range(20_000))},
]


@dataclass
class Work:
    """A state of a program's own."""

    step: int = 0
    found: list[str] = field(default_factory=list)


@dataclass
class ScoredWork(Work):
    """A state that has one field more than its base."""

    score: int = 0


class Unknown:
    """A class that no codec knows."""


class StateContract(Base):
    """put_state, get_state, clear_state."""

    def test_a_thread_that_was_never_put_has_no_state(self, chat: Face) -> None:
        assert chat.get_state(T1) is None

    def test_a_state_comes_back_as_it_was_put(self, chat: Face, opened: Faces) -> None:
        other = opened()
        for state in STATES:
            with each(state):
                assert chat.put_state(T1, state) is state
                for found in (chat.get_state(T1), other.get_state(T1)):
                    assert found == state
                    assert type(found) is type(state)

    def test_the_newest_state_is_the_one_that_is_got(self, chat: Face) -> None:
        for step in range(5):
            chat.put_state(T1, {"step": step})
            assert chat.get_state(T1) == {"step": step}

    def test_each_put_is_a_commit_even_of_an_equal_state(self, chat: Face) -> None:
        for _ in range(3):
            chat.put_state(T1, {"step": 1})

        assert commits(chat) == 3

    def test_threads_have_states_of_their_own(self, chat: Face) -> None:
        chat.put_state(T1, "one")
        chat.put_state(T2, "two")
        chat.clear_state(T2)

        assert chat.get_state(T1) == "one"
        assert chat.get_state(T2) is None

    def test_another_checkpointer_sees_a_put_at_once(self, chat: Face, opened: Faces) -> None:
        other = opened()
        for step in range(5):
            chat.put_state(T1, step)
            assert other.get_state(T1) == step
            other.put_state(T1, -step)
            assert chat.get_state(T1) == -step

    def test_a_cleared_state_is_gone_and_everything_else_stays(self, chat: Face) -> None:
        chat.put_state(T1, {"step": 1})
        chat.put_messages(T1, said("hello"))
        chat.put_thread(T1, {"thread_name": "Name"})

        assert chat.clear_state(T1) is True

        assert chat.get_state(T1) is None
        assert len(chat.list_messages(T1)) == 1
        assert chat.get_thread(T1).thread_name == "Name"

    def test_clearing_is_no_error_where_there_is_nothing_and_makes_no_commit(
        self, chat: Face
    ) -> None:
        assert chat.clear_state(T1) is True

        chat.put_state(T1, 1)
        assert chat.clear_state(T1) is True
        assert chat.clear_state(T1) is True
        assert commits(chat) == 2

    @pytest.mark.parametrize("end", ["clear_state", "clean_thread"])
    def test_a_state_can_be_put_after_it_was_cleared(self, chat: Face, end: str) -> None:
        for state in ({"step": 1}, {"step": 1}, {"step": 2}):
            chat.put_state(T1, state)
            assert chat.get_state(T1) == state
            getattr(chat, end)(T1)
            assert chat.get_state(T1) is None

    def test_a_cleared_state_stays_in_the_history(self, chat: Face) -> None:
        chat.put_state(T1, {"step": 1})
        chat.clear_state(T1)
        chat.timeline(T1).rollback()

        assert chat.get_state(T1) == {"step": 1}

    def test_a_state_of_a_declared_class_comes_back_as_one(self, opened: Faces) -> None:
        chat = opened(types=[Work, ScoredWork])
        chat.put_state(T1, Work(1, ["a"]))
        chat.put_state(T2, ScoredWork(2, ["b"], score=7))

        other = opened(types=[Work, ScoredWork])
        assert other.get_state(T1) == Work(1, ["a"])
        found = other.get_state(T2)
        assert type(found) is ScoredWork
        assert found == ScoredWork(2, ["b"], score=7)

    def test_a_state_of_a_class_that_is_not_declared_here_is_a_clear_error(
        self, chat: Face, opened: Faces
    ) -> None:
        opened(types=[Work]).put_state(T1, Work(1))
        chat.put_messages(T1, said("the rest can be read"))
        closed = opened(classes="declared")

        with pytest.raises(UndeclaredClass, match="Work"):
            closed.get_state(T1)
        assert len(closed.list_messages(T1)) == 1


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

    def test_it_may_be_lost_at_any_moment(self, chat: Face) -> None:
        chat.put_state(T1, "stored")
        chat.put_state_cache(T1, "cached")
        scratch = chat.store.scratch()
        for key in scratch.keys(""):
            scratch.remove(key)

        assert chat.get_state_cache(T1) is None
        assert chat.get_state(T1) == "stored"
