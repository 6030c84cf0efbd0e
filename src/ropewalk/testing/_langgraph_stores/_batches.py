"""Batches: several operations at once."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.store.base import GetOp, ListNamespacesOp, PutOp, SearchOp

from ropewalk.testing._langgraph_stores._base import NOTES, Base, Face, keys


class BatchContract(Base):
    """`batch` and `abatch`."""

    def test_an_empty_batch_gives_nothing(self, memory: Face) -> None:
        assert memory.batch([]) == []

    def test_results_are_in_the_order_of_the_operations(self, memory: Face) -> None:
        memory.put(NOTES, "a", {"n": 1})
        given = memory.batch(
            [
                GetOp(NOTES, "missing"),
                PutOp(NOTES, "b", {"n": 2}),
                GetOp(NOTES, "a"),
                SearchOp(NOTES),
                ListNamespacesOp(),
            ]
        )

        assert given[0] is None and given[1] is None
        assert given[2].value == {"n": 1}
        assert keys(given[3]) == ["a"] and given[4] == [NOTES]

    def test_reads_see_what_was_there_before_the_puts(self, memory: Face) -> None:
        memory.put(NOTES, "k", {"n": 1})
        given = memory.batch(
            [
                PutOp(NOTES, "k", {"n": 2}),
                PutOp(("new",), "x", {"n": 3}),
                GetOp(NOTES, "k"),
                SearchOp(("new",)),
                ListNamespacesOp(),
            ]
        )

        assert given[2].value == {"n": 1} and given[3] == [] and given[4] == [NOTES]
        assert memory.get(NOTES, "k").value == {"n": 2}

    def test_of_several_puts_of_one_key_the_last_counts(self, memory: Face) -> None:
        memory.batch(
            [
                PutOp(NOTES, "a", {"n": 1}),
                PutOp(NOTES, "b", {"n": 1}),
                PutOp(NOTES, "a", {"n": 2}),
                PutOp(NOTES, "b", None),
                PutOp(NOTES, "c", None),
                PutOp(NOTES, "c", {"n": 3}),
            ]
        )
        found = memory.search(NOTES)

        assert {item.key: item.value["n"] for item in found} == {"a": 2, "c": 3}

    def test_one_item_that_is_asked_for_twice_is_given_twice(self, memory: Face) -> None:
        memory.put(NOTES, "k", {"list": []})
        first, second = memory.batch([GetOp(NOTES, "k"), GetOp(NOTES, "k")])
        first.value["list"].append(1)

        assert second.value == {"list": []}

    @pytest.mark.parametrize(
        "bad",
        [
            PutOp(("a.b",), "k", {"n": 2}),
            PutOp(("",), "k", {"n": 2}),
            SearchOp(("a.b",)),
            GetOp(("a.b",), "k"),
            SearchOp(NOTES, filter={"n": {"$unknown": 1}}),
        ],
        ids=repr,
    )
    def test_a_batch_with_a_bad_operation_does_nothing(self, memory: Face, bad: Any) -> None:
        with pytest.raises(ValueError):
            memory.batch([PutOp(NOTES, "k", {"n": 1}), bad])

        assert memory.get(NOTES, "k") is None

    def test_a_batch_with_a_value_that_is_not_stored_does_nothing(self, memory: Face) -> None:
        unstorable: Any = {"n": object()}
        with pytest.raises((TypeError, ValueError)):
            memory.batch([PutOp(NOTES, "a", {"n": 1}), PutOp(NOTES, "b", unstorable)])

        assert memory.search(NOTES) == []

    def test_a_large_batch_is_done_whole(self, memory: Face) -> None:
        memory.batch([PutOp(NOTES, f"k{n}", {"n": n}) for n in range(300)])
        found = memory.batch([GetOp(NOTES, f"k{n}") for n in range(300)])

        assert [item.value["n"] for item in found] == list(range(300))
