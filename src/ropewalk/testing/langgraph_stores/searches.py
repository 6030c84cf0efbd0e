"""Searches: by namespace, by filter, and by similarity."""

from __future__ import annotations

import math
from typing import Any

import pytest
from langgraph.store.base import PutOp, SearchItem

from ropewalk.testing.langgraph_stores.base import (
    NOTES,
    Base,
    joined,
    keys,
    put_numbered,
)
from ropewalk.testing.threads.faces import Face, Faces

ITEMS: dict[str, dict[str, Any]] = {
    "two": {"n": 2, "tag": ["x"], "kind": "even", "a": {"b": 1, "c": [10, 20]}},
    "nine": {"n": 9, "tag": ["x", "y"], "kind": "odd", "a": {"b": 2}},
    "ten": {"n": 10, "tag": [], "kind": "even", "flag": True},
    "half": {"n": 10.5, "kind": None, "flag": False},
    "text": {"n": "10", "kind": "odd", "a": "b", "flag": 1},
    "none": {"kind": "odd", "list": [{"q": 1}, {"q": 2}]},
    "dotted": {"a.b": 7, "n": None, "flag": 0},
}
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
LETTERS = "abcdefghijklmnopqrstuvwxyz"


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
"""Filters that LangGraph documents, and the items that match."""

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
"""Filters with a clear meaning that LangGraph does not document."""


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


class Letters:
    """Embeds a text as its letter counts, and counts its own calls."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, texts: list[str]) -> list[list[float]]:
        """The vectors of texts."""
        self.texts += texts
        return [letters(text) for text in texts]


def letters(text: str) -> list[float]:
    """The vector of a text."""
    return [float(text.lower().count(letter)) for letter in LETTERS]


def similarity(one: str, other: str) -> float:
    """The expected score of two texts."""
    left, right = letters(one), letters(other)
    lengths = math.hypot(*left) * math.hypot(*right)
    return sum(a * b for a, b in zip(left, right, strict=True)) / lengths if lengths else 0.0


class VectorContract(Base):
    """`index` and `query`."""

    @pytest.fixture
    def embed(self) -> Letters:
        """The function that embeds."""
        if not self.has_vectors:
            pytest.skip("stores of this kind do not search by meaning")
        return Letters()

    @pytest.fixture
    def index(self, embed: Letters) -> dict[str, Any]:
        """The configuration of the index."""
        return {"dims": len(LETTERS), "embed": embed, "fields": ["text"]}

    @pytest.fixture
    def meaning(self, opened: Faces, index: dict[str, Any]) -> Face:
        """A store that searches by similarity."""
        return opened(index=index)

    def test_the_most_similar_comes_first(self, meaning: Face) -> None:
        texts = {"one": "aaaa", "two": "aabb", "three": "bbbb", "four": "abbb", "five": "cccc"}
        for key, text in texts.items():
            meaning.put(NOTES, key, {"text": text})
        found = meaning.search(NOTES, query="aaa")

        assert keys(found)[:3] == ["one", "two", "four"] and len(found) == 5
        for item in found:
            assert item.score == pytest.approx(similarity("aaa", item.value["text"]), abs=1e-4)

    def test_only_the_namespace_that_is_asked_for_is_searched(self, meaning: Face) -> None:
        meaning.put(("a",), "near", {"text": "xyz"})
        meaning.put(("b",), "far", {"text": "abc"})
        meaning.put(("b", "c"), "middle", {"text": "abx"})

        assert keys(meaning.search(("b",), query="xyz")) == ["middle", "far"]
        assert keys(meaning.search((), query="xyz")) == ["near", "middle", "far"]

    def test_a_filter_leaves_as_many_as_there_are(self, meaning: Face) -> None:
        meaning.batch(
            [
                PutOp(NOTES, f"k{n}", {"text": "a" * (200 - n) + "b" * n, "rare": n % 50 == 49})
                for n in range(200)
            ]
        )
        found = meaning.search(NOTES, query="a", filter={"rare": True}, limit=3)

        assert keys(found) == ["k49", "k99", "k149"]

    def test_pages_cover_everything_once(self, meaning: Face) -> None:
        meaning.batch(
            [PutOp(NOTES, f"k{n}", {"text": "a" * (50 - n) + "b" * n}) for n in range(30)]
        )
        pages = [
            keys(meaning.search(NOTES, query="a", limit=8, offset=at)) for at in (0, 8, 16, 24)
        ]

        assert joined(pages) == [f"k{n}" for n in range(30)]

    def test_items_without_vectors_follow(self, meaning: Face) -> None:
        meaning.put(NOTES, "unindexed", {"text": "aaa"}, index=False)
        meaning.put(NOTES, "fieldless", {"other": "aaa"})
        meaning.put(NOTES, "far", {"text": "zzz"})
        meaning.put(NOTES, "near", {"text": "aaa"})
        found = meaning.search(NOTES, query="aaa")
        page = meaning.search(NOTES, query="aaa", limit=2, offset=1)

        assert keys(found)[:2] == ["near", "far"]
        assert sorted(keys(found)[2:]) == ["fieldless", "unindexed"]
        assert [item.score for item in found[2:]] == [None, None]
        assert keys(page) == keys(found)[1:3]

    def test_a_put_may_say_what_is_embedded(self, meaning: Face) -> None:
        value = {"text": "zzz", "title": "aaa", "deep": {"parts": [{"t": "bbb"}, {"t": "ccc"}]}}
        meaning.put(NOTES, "text", value)
        meaning.put(NOTES, "title", value, index=["title"])
        meaning.put(NOTES, "parts", value, index=["deep.parts[*].t"])

        assert keys(meaning.search(NOTES, query="a"))[0] == "title"
        assert keys(meaning.search(NOTES, query="z"))[0] == "text"
        for query in ("b", "c"):
            best = meaning.search(NOTES, query=query)[0]
            assert best.key == "parts" and best.score == pytest.approx(1.0, abs=1e-4)

    def test_the_whole_value_is_embedded_unless_told(self, opened: Faces, embed: Letters) -> None:
        meaning = opened(index={"dims": len(LETTERS), "embed": embed})
        meaning.put(NOTES, "k", {"title": "abc", "n": 1})

        assert len(embed.texts) == 1 and "abc" in embed.texts[0]
        assert keys(meaning.search(NOTES, query="abc")) == ["k"]

    def test_an_update_is_found_by_what_it_says_now(self, meaning: Face) -> None:
        meaning.put(NOTES, "k", {"text": "aaa"})
        meaning.put(NOTES, "l", {"text": "bbb"})
        meaning.search(NOTES, query="a")
        meaning.put(NOTES, "k", {"text": "ccc"})
        found = meaning.search(NOTES, query="c")

        assert keys(found) == ["k", "l"]
        assert found[0].score == pytest.approx(1.0, abs=1e-4)
        assert meaning.search(NOTES, query="a")[0].score == pytest.approx(0.0, abs=1e-4)

    def test_a_deleted_item_is_not_found(self, meaning: Face) -> None:
        meaning.put(NOTES, "k", {"text": "aaa"})
        meaning.put(NOTES, "l", {"text": "aab"})
        meaning.search(NOTES, query="a")
        meaning.delete(NOTES, "k")

        assert keys(meaning.search(NOTES, query="a")) == ["l"]

    def test_an_update_without_an_index_has_no_score(self, meaning: Face) -> None:
        meaning.put(NOTES, "k", {"text": "aaa"})
        meaning.put(NOTES, "k", {"text": "aaa"}, index=False)
        (found,) = meaning.search(NOTES, query="a")

        assert found.score is None

    def test_texts_that_are_the_same_are_embedded_once(self, meaning: Face, embed: Letters) -> None:
        meaning.batch([PutOp(NOTES, f"k{n}", {"text": "same"}) for n in range(5)])
        found = meaning.search(NOTES, query="same")

        assert embed.texts.count("same") == 2
        assert [item.score for item in found] == [pytest.approx(1.0, abs=1e-4)] * 5

    def test_a_search_without_a_query_embeds_nothing(self, meaning: Face, embed: Letters) -> None:
        meaning.put(NOTES, "k", {"text": "aaa"})
        before = len(embed.texts)
        found = meaning.search(NOTES)

        assert keys(found) == ["k"] and found[0].score is None and len(embed.texts) == before

    def test_a_store_without_an_index_takes_a_query_for_none(self, opened: Faces) -> None:
        memory = opened()
        memory.put(NOTES, "k", {"text": "aaa"}, index=["text"])

        assert keys(memory.search(NOTES, query="b")) == ["k"]

    def test_another_store_finds_it_without_embedding_it_again(
        self, opened: Faces, index: dict[str, Any], embed: Letters
    ) -> None:
        if not self.reopens:
            pytest.skip("stores of this kind share no data")
        first, second = opened(index=index), opened(index=index)
        first.put(NOTES, "k", {"text": "aaa"})
        seen = keys(second.search(NOTES, query="a"))
        first.put(NOTES, "l", {"text": "abb"})

        assert seen == ["k"] and keys(second.search(NOTES, query="b")) == ["l", "k"]
        assert embed.texts.count("aaa") == 1
