"""Items: put, read, deleted, batched, listed by namespace, expired and shared."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)

from ropewalk.testing.langgraph_stores.base import NOTES, Base, joined, keys
from ropewalk.testing.threads.faces import Face, Faces

VALUES: dict[str, dict[str, Any]] = {
    "empty": {},
    "nested": {"a": {"b": [1, {"c": None}]}, "d": []},
    "text": {"é": "naïve 漢字 🎉", "quote": 'it\'s "so"; DROP TABLE store; --', "line": "a\nb\t"},
    "numbers": {"int": 1, "float": 1.5, "negative": -3, "large": 2**53, "zero": 0.0},
    "flags": {"yes": True, "no": False, "none": None},
    "odd names": {"a.b": 1, "$x": 2, "": 3, "with space": 4, "[0]": 5},
}
KEYS = [
    "a",
    "a b",
    "a.b",
    "a/b",
    "a:b",
    "é",
    "漢字",
    "🎉",
    "%",
    "_",
    "*",
    "'",
    '"',
    "a" * 500,
    "-1",
]
LABELS = ["a b", "a/b", "a:b", "é", "漢字", "%", "_", "*", "'", '"', "a" * 200, "user@host"]

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
OMIT = {"omit_expired": True, "refresh_on_read": True}
THREADS = 8


class ItemContract(Base):
    """`get`, `put` and `delete`."""

    def test_an_item_comes_back_as_it_was_put(self, memory: Face) -> None:
        before = datetime.now(UTC) - timedelta(seconds=5)
        memory.put(("users", "alice"), "name", {"first": "Alice"})
        found = memory.get(("users", "alice"), "name")

        assert isinstance(found, Item)
        assert (found.namespace, found.key) == (("users", "alice"), "name")
        assert found.value == {"first": "Alice"}
        assert (
            before < found.created_at <= found.updated_at < datetime.now(UTC) + timedelta(seconds=5)
        )

    @pytest.mark.parametrize("name", VALUES)
    def test_values_are_exact(self, memory: Face, name: str) -> None:
        memory.put(NOTES, "k", VALUES[name])
        found = memory.get(NOTES, "k").value

        assert repr(found) == repr(VALUES[name])

    def test_what_is_not_there_is_none(self, memory: Face) -> None:
        memory.put(NOTES, "k", {})

        assert memory.get(NOTES, "other") is None
        assert memory.get(("others",), "k") is None
        assert memory.get((*NOTES, "below"), "k") is None

    def test_a_put_replaces_the_whole_value(self, memory: Face) -> None:
        memory.put(NOTES, "k", {"a": 1, "b": 2})
        memory.put(NOTES, "k", {"b": 3})

        assert memory.get(NOTES, "k").value == {"b": 3}

    def test_an_update_keeps_the_time_of_creation(self, memory: Face) -> None:
        memory.put(NOTES, "k", {"a": 1})
        first = memory.get(NOTES, "k")
        memory.put(NOTES, "k", {"a": 2})
        second = memory.get(NOTES, "k")

        assert second.created_at == first.created_at
        assert second.updated_at >= first.updated_at

    def test_a_deleted_item_is_gone(self, memory: Face) -> None:
        memory.put(NOTES, "k", {"a": 1})
        memory.put(NOTES, "other", {"a": 2})
        memory.delete(NOTES, "k")

        assert memory.get(NOTES, "k") is None
        assert memory.get(NOTES, "other").value == {"a": 2}

    def test_deleting_what_is_not_there_does_nothing(self, memory: Face) -> None:
        memory.delete(NOTES, "k")

        assert memory.get(NOTES, "k") is None

    def test_an_item_that_was_deleted_can_be_put_again(self, memory: Face) -> None:
        memory.put(NOTES, "k", {"a": 1})
        memory.delete(NOTES, "k")
        memory.put(NOTES, "k", {"b": 2})

        assert memory.get(NOTES, "k").value == {"b": 2}

    def test_keys_may_be_any_text(self, memory: Face) -> None:
        for number, key in enumerate(KEYS):
            memory.put(NOTES, key, {"number": number})

        assert [memory.get(NOTES, key).value["number"] for key in KEYS] == list(range(len(KEYS)))

    def test_labels_may_be_any_text_without_dots(self, memory: Face) -> None:
        for number, label in enumerate(LABELS):
            memory.put(("root", label), "k", {"number": number})
        found = [memory.get(("root", label), "k").value["number"] for label in LABELS]

        assert found == list(range(len(LABELS)))

    def test_labels_and_keys_are_not_mistaken_for_each_other(self, memory: Face) -> None:
        memory.put(("a", "b"), "c", {"at": "a b, c"})
        memory.put(("a",), "b", {"at": "a, b"})
        memory.put(("a",), "b.c", {"at": "a, b.c"})
        memory.put(("ab",), "c", {"at": "ab, c"})

        assert memory.get(("a", "b"), "c").value == {"at": "a b, c"}
        assert memory.get(("a",), "b").value == {"at": "a, b"}
        assert memory.get(("a",), "b.c").value == {"at": "a, b.c"}
        assert memory.get(("ab",), "c").value == {"at": "ab, c"}

    def test_what_was_put_is_copied(self, memory: Face) -> None:
        value = {"list": [1]}
        memory.put(NOTES, "k", value)
        value["list"].append(2)

        assert memory.get(NOTES, "k").value == {"list": [1]}

    def test_what_was_read_is_the_callers_own(self, memory: Face) -> None:
        memory.put(NOTES, "k", {"list": [1]})
        memory.get(NOTES, "k").value["list"].append(2)
        memory.search(NOTES)[0].value["list"].append(3)

        assert memory.get(NOTES, "k").value == {"list": [1]}

    def test_a_large_value_comes_back(self, memory: Face) -> None:
        value = {"text": "0123456789" * 50_000, "list": list(range(5_000))}
        memory.put(NOTES, "k", value)

        assert memory.get(NOTES, "k").value == value

    @pytest.mark.parametrize(
        "namespace", [(), ("",), ("a", ""), ("a.b",), ("a\0b",), ("langgraph",), (1,)], ids=repr
    )
    def test_a_put_refuses_a_namespace_that_breaks_the_rules(
        self, memory: Face, namespace: Any
    ) -> None:
        with pytest.raises(ValueError):
            memory.put(namespace, "k", {"a": 1})

        assert memory.search(()) == []

    def test_another_store_on_the_data_sees_it(self, opened: Faces) -> None:
        if not self.reopens:
            pytest.skip("stores of this kind share no data")
        first, second = opened(), opened()
        first.put(NOTES, "k", {"a": 1})
        seen = second.get(NOTES, "k")
        second.put(NOTES, "k", {"a": 2})

        assert seen.value == {"a": 1}
        assert first.get(NOTES, "k").value == {"a": 2}


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


class TimeContract(Base):
    """`ttl`. The store is always configured to omit expired items."""

    @pytest.fixture
    def timed(self, opened: Faces) -> Face:
        """A store whose items can expire."""
        if not self.has_ttl:
            pytest.skip("stores of this kind have no items that end")
        return opened(ttl=dict(OMIT))

    def _pass(self, memory: Face, units: float) -> None:
        self.wait(memory.target, units * self.minutes)

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


class TogetherContract(Base):
    """One store, many threads and tasks."""

    def test_threads_lose_nothing_of_each_other(self, store: BaseStore) -> None:

        def work(number: int) -> None:
            for step in range(5):
                store.put((*NOTES, f"n{number}"), f"k{step}", {"by": number})
                assert store.get((*NOTES, f"n{number}"), f"k{step}") is not None

        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(work, range(THREADS)))

        assert len(store.search(NOTES, limit=1000)) == THREADS * 5
        assert len(store.list_namespaces()) == THREADS

    def test_tasks_lose_nothing_of_each_other(self, store: BaseStore) -> None:

        async def work(number: int) -> Any:
            await store.aput(NOTES, f"k{number}", {"by": number})
            return await store.aget(NOTES, f"k{number}")

        async def all_at_once() -> list[Any]:
            return await asyncio.gather(*(work(number) for number in range(20)))

        found = asyncio.run(all_at_once())

        assert [item.value["by"] for item in found] == list(range(20))
        assert len(store.search(NOTES, limit=100)) == 20

    def test_a_store_works_on_one_loop_after_another(self, store: BaseStore) -> None:
        for number in range(3):
            asyncio.run(store.aput(NOTES, f"k{number}", {}))

        assert len(asyncio.run(store.asearch(NOTES))) == 3

    def test_an_item_is_never_half_written(self, memory: Face) -> None:
        def work(number: int) -> None:
            memory.target.put(NOTES, "k", {"first": number, "second": number})

        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(work, range(24)))
        value = memory.get(NOTES, "k").value

        assert value["first"] == value["second"]
