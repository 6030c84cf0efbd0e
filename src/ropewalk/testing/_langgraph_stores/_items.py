"""Items: what is put comes back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from langgraph.store.base import Item

from ropewalk.testing._langgraph_stores._base import NOTES, Base, Face, Faces

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
