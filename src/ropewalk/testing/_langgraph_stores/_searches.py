"""Searches without a query: which items, in which order, page by page."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.store.base import SearchItem

from ropewalk.testing._langgraph_stores._base import NOTES, Base, Face, joined, keys, put_numbered


class SearchContract(Base):
    """`search`, without a filter and without a query."""

    def test_a_search_finds_what_is_in_a_namespace_and_below(self, memory: Face) -> None:
        memory.put(("a",), "one", {})
        memory.put(("a", "b"), "two", {})
        memory.put(("a", "b", "c"), "three", {})
        memory.put(("d",), "four", {})

        assert sorted(keys(memory.search(("a",)))) == ["one", "three", "two"]
        assert sorted(keys(memory.search(("a", "b")))) == ["three", "two"]
        assert keys(memory.search(("d",))) == ["four"]
        assert memory.search(("a", "x")) == []
        assert len(memory.search(())) == 4

    def test_prefixes_are_compared_label_by_label(self, memory: Face) -> None:
        for label in ("user1", "user10", "a_c", "abc", "a%", "a*", "A_C", "USER1"):
            memory.put((label,), label, {})

        for label in ("user1", "a_c", "a%", "a*"):
            assert keys(memory.search((label,))) == [label]
        assert memory.search(("user",)) == []
        assert memory.search(("*",)) == []

    def test_what_is_found_is_whole(self, memory: Face) -> None:
        memory.put(("a", "b"), "k", {"n": 1})
        stored = memory.get(("a", "b"), "k")
        (found,) = memory.search(("a",))

        assert isinstance(found, SearchItem) and found.score is None
        assert (found.namespace, found.key, found.value) == (("a", "b"), "k", {"n": 1})
        assert (found.created_at, found.updated_at) == (stored.created_at, stored.updated_at)

    def test_a_search_gives_ten_items_unless_told(self, memory: Face) -> None:
        put_numbered(memory, 15)

        assert len(memory.search(NOTES)) == 10
        assert len(memory.search(NOTES, limit=3)) == 3
        assert len(memory.search(NOTES, limit=100)) == 15

    def test_the_latest_put_comes_first(self, memory: Face) -> None:
        put_numbered(memory, 4)
        memory.put(NOTES, "k1", {"number": 11})

        assert keys(memory.search(NOTES)) == ["k1", "k3", "k2", "k0"]

    def test_pages_cover_everything_once(self, memory: Face) -> None:
        put_numbered(memory, 25)
        pages = [keys(memory.search(NOTES, limit=7, offset=at)) for at in range(0, 35, 7)]

        assert [len(page) for page in pages] == [7, 7, 7, 4, 0]
        assert joined(pages) == keys(memory.search(NOTES, limit=25))
        assert len(set(joined(pages))) == 25

    def test_deleted_items_are_not_found(self, memory: Face) -> None:
        put_numbered(memory, 3)
        memory.delete(NOTES, "k1")

        assert keys(memory.search(NOTES)) == ["k2", "k0"]

    @pytest.mark.parametrize("prefix", [("a.b",), ("",), ("a", ""), (1,), ("a\0",)], ids=repr)
    def test_a_prefix_that_breaks_the_rules_is_refused(self, memory: Face, prefix: Any) -> None:
        with pytest.raises(ValueError):
            memory.search(prefix)
