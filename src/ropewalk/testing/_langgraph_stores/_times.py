"""Items that end: a time to live, in minutes, that reading begins again."""

from __future__ import annotations

import pytest

from ropewalk.testing._langgraph_stores._base import NOTES, Base, Face, Faces, keys

OMIT = {"omit_expired": True, "refresh_on_read": True}


class TimeContract(Base):
    """`ttl`. The store is always told to omit what is over."""

    @pytest.fixture
    def timed(self, opened: Faces) -> Face:
        """A store whose items may end."""
        if not self.has_ttl:
            pytest.skip("stores of this kind have no items that end")
        return opened(ttl=dict(OMIT))

    def _pass(self, memory: Face, units: float) -> None:
        self.wait(memory.store, units * self.minutes)

    def test_an_item_ends_when_its_time_is_over(self, timed: Face) -> None:
        timed.put(NOTES, "k", {"a": 1}, ttl=self.minutes)
        before = timed.get(NOTES, "k", refresh_ttl=False)
        self._pass(timed, 1.7)

        assert before.value == {"a": 1}
        assert timed.get(NOTES, "k") is None
        assert timed.search(NOTES) == []

    def test_an_item_that_ended_does_not_come_back(self, timed: Face) -> None:
        timed.put(NOTES, "k", {"a": 1}, ttl=self.minutes)
        self._pass(timed, 1.7)
        first = timed.get(NOTES, "k")

        assert first is None
        assert timed.get(NOTES, "k") is None and timed.search(NOTES) == []

    def test_a_namespace_of_items_that_ended_is_not_listed(self, timed: Face) -> None:
        timed.put(("short",), "k", {"a": 1}, ttl=self.minutes)
        timed.put(("long",), "k", {"a": 1})
        before = timed.list_namespaces()
        self._pass(timed, 1.7)

        assert before == [("long",), ("short",)]
        assert timed.list_namespaces() == [("long",)]

    def test_other_items_stay(self, timed: Face) -> None:
        timed.put(NOTES, "short", {"a": 1}, ttl=self.minutes)
        timed.put(NOTES, "long", {"a": 1}, ttl=self.minutes * 100)
        timed.put(NOTES, "ever", {"a": 1})
        self._pass(timed, 1.7)

        assert keys(timed.search(NOTES)) == ["ever", "long"]

    def test_a_read_begins_the_time_again(self, timed: Face) -> None:
        timed.put(NOTES, "got", {"a": 1}, ttl=3 * self.minutes)
        timed.put(("found",), "found", {"a": 1}, ttl=3 * self.minutes)
        timed.put(("left",), "left", {"a": 1}, ttl=3 * self.minutes)
        self._pass(timed, 2)
        timed.get(NOTES, "got")
        timed.search(("found",))
        self._pass(timed, 2)

        assert timed.get(NOTES, "got") is not None
        assert keys(timed.search(("found",))) == ["found"]
        assert timed.get(("left",), "left") is None

    def test_a_read_that_says_so_does_not_begin_the_time_again(self, timed: Face) -> None:
        timed.put(NOTES, "k", {"a": 1}, ttl=3 * self.minutes)
        self._pass(timed, 2)
        found = timed.get(NOTES, "k", refresh_ttl=False)
        listed = timed.search(NOTES, refresh_ttl=False)
        self._pass(timed, 2)

        assert found is not None and keys(listed) == ["k"]
        assert timed.get(NOTES, "k") is None

    def test_a_put_begins_the_time_again(self, timed: Face) -> None:
        timed.put(NOTES, "k", {"a": 1}, ttl=3 * self.minutes)
        self._pass(timed, 2)
        timed.put(NOTES, "k", {"a": 2}, ttl=3 * self.minutes)
        self._pass(timed, 2)

        assert timed.get(NOTES, "k").value == {"a": 2}

    def test_a_put_without_a_time_has_no_end(self, timed: Face) -> None:
        timed.put(NOTES, "k", {"a": 1}, ttl=self.minutes)
        timed.put(NOTES, "k", {"a": 2})
        self._pass(timed, 1.7)

        assert timed.get(NOTES, "k").value == {"a": 2}

    def test_the_store_may_have_a_time_for_all(self, opened: Faces) -> None:
        if not self.has_ttl:
            pytest.skip("stores of this kind have no items that end")
        timed = opened(ttl={**OMIT, "default_ttl": self.minutes})
        timed.put(NOTES, "short", {"a": 1})
        timed.put(NOTES, "ever", {"a": 1}, ttl=None)
        timed.put(NOTES, "long", {"a": 1}, ttl=self.minutes * 100)
        self._pass(timed, 1.7)

        assert keys(timed.search(NOTES)) == ["long", "ever"]

    def test_the_store_may_say_that_reads_do_not_count(self, opened: Faces) -> None:
        if not self.has_ttl:
            pytest.skip("stores of this kind have no items that end")
        timed = opened(ttl={"omit_expired": True, "refresh_on_read": False})
        timed.put(NOTES, "k", {"a": 1}, ttl=3 * self.minutes)
        timed.put(NOTES, "asked", {"a": 1}, ttl=3 * self.minutes)
        self._pass(timed, 2)
        found = timed.get(NOTES, "k"), timed.get(NOTES, "asked", refresh_ttl=True)
        self._pass(timed, 2)

        assert all(found) and timed.get(NOTES, "k") is None

    def test_sweeping_deletes_what_is_over(self, timed: Face) -> None:
        for number in range(5):
            timed.put(NOTES, f"k{number}", {"a": 1}, ttl=self.minutes)
        timed.put(NOTES, "ever", {"a": 1})
        early = timed.sweep_ttl()
        self._pass(timed, 1.7)
        swept = timed.sweep_ttl()

        assert early == 0 and swept == 5
        assert timed.sweep_ttl() == 0 and keys(timed.search(NOTES)) == ["ever"]
