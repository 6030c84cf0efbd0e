"""Namespaces: which there are."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.store.base import ListNamespacesOp, MatchCondition

from ropewalk.testing._langgraph_stores._base import Base, Face, joined

ALL = [
    ("a", "b", "c"),
    ("a", "b", "d", "e"),
    ("a", "b", "d", "i"),
    ("a", "b", "f"),
    ("a", "c", "f"),
    ("b", "a", "f"),
    ("users", "u1", "settings"),
    ("users", "u2", "memories"),
    ("users", "u2", "settings"),
]


class NamespaceContract(Base):
    """`list_namespaces`."""

    @pytest.fixture
    def listed(self, memory: Face) -> Face:
        """A store that has the namespaces above, put in another order."""
        for namespace in sorted(ALL, key=lambda one: one[::-1]):
            memory.put(namespace, "k", {})
            memory.put(namespace, "l", {})
        return memory

    def test_all_namespaces_are_listed_once_in_their_order(self, listed: Face) -> None:
        assert listed.list_namespaces() == ALL

    def test_an_empty_store_has_no_namespaces(self, memory: Face) -> None:
        assert memory.list_namespaces() == []

    def test_a_prefix_is_compared_from_the_start(self, listed: Face) -> None:
        assert listed.list_namespaces(prefix=("a", "b")) == ALL[:4]
        assert listed.list_namespaces(prefix=("users",)) == ALL[6:]
        assert listed.list_namespaces(prefix=("b",)) == [("b", "a", "f")]
        assert listed.list_namespaces(prefix=("a", "b", "c", "d")) == []
        assert listed.list_namespaces(prefix=("user",)) == []

    def test_a_suffix_is_compared_from_the_end(self, listed: Face) -> None:
        assert listed.list_namespaces(suffix=("f",)) == [
            ("a", "b", "f"),
            ("a", "c", "f"),
            ("b", "a", "f"),
        ]
        assert listed.list_namespaces(suffix=("d", "e")) == [("a", "b", "d", "e")]
        assert listed.list_namespaces(suffix=("b",)) == []

    def test_a_star_stands_for_any_label(self, listed: Face) -> None:
        assert listed.list_namespaces(prefix=("users", "*", "settings")) == [
            ("users", "u1", "settings"),
            ("users", "u2", "settings"),
        ]
        assert listed.list_namespaces(prefix=("*", "b")) == ALL[:4]
        assert listed.list_namespaces(suffix=("u2", "*")) == ALL[7:]
        assert listed.list_namespaces(prefix=("*", "*", "*", "*")) == ALL[1:3]

    def test_prefix_and_suffix_must_both_match(self, listed: Face) -> None:
        assert listed.list_namespaces(prefix=("a",), suffix=("f",)) == [
            ("a", "b", "f"),
            ("a", "c", "f"),
        ]

    def test_deeper_namespaces_are_cut_and_listed_once(self, listed: Face) -> None:
        assert listed.list_namespaces(max_depth=1) == [("a",), ("b",), ("users",)]
        assert listed.list_namespaces(prefix=("a", "b"), max_depth=3) == [
            ("a", "b", "c"),
            ("a", "b", "d"),
            ("a", "b", "f"),
        ]

    def test_pages_cover_everything_once(self, listed: Face) -> None:
        pages = [listed.list_namespaces(limit=4, offset=at) for at in (0, 4, 8, 12)]
        cut = [listed.list_namespaces(max_depth=2, limit=2, offset=at) for at in (0, 2, 4)]

        assert joined(pages) == ALL and [len(page) for page in pages] == [4, 4, 1, 0]
        assert joined(cut) == [
            ("a", "b"),
            ("a", "c"),
            ("b", "a"),
            ("users", "u1"),
            ("users", "u2"),
        ]

    def test_a_namespace_without_items_is_gone(self, listed: Face) -> None:
        listed.delete(("a", "b", "c"), "k")
        left = listed.list_namespaces()
        listed.delete(("a", "b", "c"), "l")

        assert left == ALL and listed.list_namespaces() == ALL[1:]

    def test_conditions_come_in_operations_too(self, listed: Face) -> None:
        conditions = (MatchCondition("prefix", ("users",)), MatchCondition("suffix", ("settings",)))
        (found,) = listed.batch([ListNamespacesOp(match_conditions=conditions, limit=1, offset=1)])

        assert found == [("users", "u2", "settings")]

    @pytest.mark.parametrize("path", [("a.b",), ("",), (1,), ("a\0",)], ids=repr)
    def test_conditions_that_break_the_rules_are_refused(self, listed: Face, path: Any) -> None:
        with pytest.raises(ValueError):
            listed.list_namespaces(prefix=path)
        with pytest.raises(ValueError):
            listed.list_namespaces(suffix=path)

    def test_many_namespaces_are_all_there(self, memory: Face) -> None:
        from langgraph.store.base import PutOp

        made = [("many", f"n{number}") for number in range(500)]
        memory.batch([PutOp(namespace, "k", {}) for namespace in made])

        assert memory.list_namespaces(limit=1000) == sorted(made)
        assert memory.list_namespaces(prefix=("many", "n123")) == [("many", "n123")]
        assert len(memory.search(("many", "n7"))) == 1
