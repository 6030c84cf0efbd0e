"""Searches by meaning."""

from __future__ import annotations

import math
from typing import Any

import pytest
from langgraph.store.base import PutOp

from ropewalk.testing._langgraph_stores._base import NOTES, Base, Face, Faces, joined, keys

LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Letters:
    """Embeds a text as how often it has each letter, and counts what it was asked."""

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
    """What the score of two texts has to be."""
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
        """A store that searches by meaning."""
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
