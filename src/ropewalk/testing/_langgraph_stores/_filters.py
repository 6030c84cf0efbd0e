"""Filters: one meaning for each."""

from __future__ import annotations

from typing import Any

import pytest

from ropewalk.testing._langgraph_stores._base import NOTES, Base, Face

ITEMS: dict[str, dict[str, Any]] = {
    "two": {"n": 2, "tag": ["x"], "kind": "even", "a": {"b": 1, "c": [10, 20]}},
    "nine": {"n": 9, "tag": ["x", "y"], "kind": "odd", "a": {"b": 2}},
    "ten": {"n": 10, "tag": [], "kind": "even", "flag": True},
    "half": {"n": 10.5, "kind": None, "flag": False},
    "text": {"n": "10", "kind": "odd", "a": "b", "flag": 1},
    "none": {"kind": "odd", "list": [{"q": 1}, {"q": 2}]},
    "dotted": {"a.b": 7, "n": None, "flag": 0},
}

INTERFACE: list[tuple[dict[str, Any], str]] = [
    ({}, "two nine ten half text none dotted"),
    ({"kind": "odd"}, "nine text none"),
    ({"kind": "odd", "n": 9}, "nine"),
    ({"n": {"$eq": 10}}, "ten"),
    ({"n": {"$eq": 10.0}}, "ten"),
    ({"n": {"$ne": 10}}, "two nine half text none dotted"),
    ({"n": {"$gt": 9}}, "ten half"),
    ({"n": {"$gte": 9}}, "nine ten half"),
    ({"n": {"$lt": 10}}, "two nine"),
    ({"n": {"$lte": 10}}, "two nine ten"),
    ({"n": {"$gt": 2, "$lt": 10.5}}, "nine ten"),
    ({"n": {"$gt": 9.5}}, "ten half"),
    ({"n": {"$lt": "9"}}, "text"),
    ({"tag": ["x"]}, "two"),
    ({"tag": {"$eq": ["x"]}}, "two"),
    ({"tag": {"$eq": []}}, "ten"),
    ({"a": {"$eq": {"b": 2}}}, "nine"),
    ({"a": {"b": 1}}, "two"),
    ({"flag": True}, "ten"),
    ({"flag": 1}, "text"),
    ({"flag": False}, "half"),
    ({"kind": "it's"}, ""),
]
"""Filters that LangGraph documents, and the items that pass."""

BEYOND: list[tuple[dict[str, Any], str]] = [
    ({"n": None}, "none dotted"),
    ({"n": {"$in": [2, 10, "10"]}}, "two ten text"),
    ({"n": {"$in": []}}, ""),
    ({"n": {"$nin": [2, 10]}}, "nine half text none dotted"),
    ({"n": {"$exists": True}}, "two nine ten half text dotted"),
    ({"n": {"$exists": False}}, "none"),
    ({"kind": {"$not": {"$eq": "odd"}}}, "two ten half dotted"),
    ({"n": {"$not": {"$gt": 9}}}, "two nine text none dotted"),
    ({"$and": [{"kind": "odd"}, {"n": {"$gt": 2}}]}, "nine"),
    ({"$or": [{"n": 2}, {"n": {"$gt": 10}}]}, "two half"),
    ({"$or": []}, ""),
    ({"$and": []}, "two nine ten half text none dotted"),
    ({"$not": {"kind": "odd"}}, "two ten half dotted"),
    ({"$or": [{"n": 2}, {"$and": [{"kind": "odd"}, {"a": {"b": 2}}]}]}, "two nine"),
    ({"n": {"$or": [{"$lt": 3}, {"$gt": 10}]}}, "two half"),
    ({"a.b": {"$lt": 3}}, "two nine"),
    ({"a.b": 7}, "dotted"),
    ({"a": {"b": {"$gte": 2}}}, "nine"),
    ({"a.c.1": 20}, "two"),
    ({"a.c[-1]": 20}, "two"),
    ({"list[1].q": 2}, "none"),
    ({"list.5.q": 2}, ""),
    ({"a.b.c.d": {"$exists": True}}, ""),
]
"""Filters that mean one thing although LangGraph says nothing of them."""

MEANINGLESS: list[Any] = [
    {"n": {"$regex": "1"}},
    {"$nor": [{"n": 1}]},
    {"$and": [{"n": {"$regex": "1"}}]},
    {"$or": [{"n": 2}, {"n": {"$near": 1}}]},
    {"a": {"b": {"$near": 1}}},
    {"n": {"$not": {"$near": 1}}},
    {"n": {"$gt": 1, "$near": 1}},
    {"n": {"$gt": 1, "x": 1}},
    {"$and": {"n": 1}},
    {"n": {"$in": 2}},
    {"n": {"$exists": 1}},
]


class FilterContract(Base):
    """`search` with a filter."""

    @pytest.fixture
    def filled(self, memory: Face) -> Face:
        """A store that holds the items above."""
        for key, value in ITEMS.items():
            memory.put(NOTES, key, value)
        return memory

    @pytest.mark.parametrize(("wanted", "passing"), INTERFACE, ids=repr)
    def test_a_filter_finds(self, filled: Face, wanted: dict[str, Any], passing: str) -> None:
        found = filled.search(NOTES, filter=wanted, limit=100)

        assert {item.key for item in found} == set(passing.split())

    @pytest.mark.parametrize(("wanted", "passing"), BEYOND, ids=repr)
    def test_a_filter_beyond_the_interface_finds(
        self, filled: Face, wanted: dict[str, Any], passing: str
    ) -> None:
        found = filled.search(NOTES, filter=wanted, limit=100)

        assert {item.key for item in found} == set(passing.split())

    @pytest.mark.parametrize("wanted", MEANINGLESS, ids=repr)
    def test_a_filter_that_means_nothing_is_an_error(self, filled: Face, wanted: Any) -> None:
        with pytest.raises(ValueError):
            filled.search(NOTES, filter=wanted)

    def test_a_filter_that_means_nothing_is_an_error_where_nothing_is(self, memory: Face) -> None:
        with pytest.raises(ValueError):
            memory.search(NOTES, filter={"n": {"$near": 1}})

    def test_limit_and_offset_count_what_passes(self, memory: Face) -> None:
        for number in range(30):
            memory.put(NOTES, f"k{number}", {"number": number, "odd": number % 2 == 1})
        wanted = {"odd": True}
        first = memory.search(NOTES, filter=wanted, limit=10)
        second = memory.search(NOTES, filter=wanted, limit=10, offset=10)

        assert [item.value["number"] for item in first] == list(range(29, 10, -2))
        assert [item.value["number"] for item in second] == list(range(9, 0, -2))
