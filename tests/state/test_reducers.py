"""Reducers: two updates of one field become one, without loading what need not be."""

from __future__ import annotations

import operator
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk import AgentState, ContentRef, Externalized, Inline, MemoryStore
from ropewalk.adapters import StateAdapter
from ropewalk.errors import InvalidInput, MissingContent, NotStorable
from ropewalk.state import append_items, merge_keys, release, replace_value
from ropewalk.tree import Object


class Merged(AgentState):
    docs: Annotated[Externalized[list[Any]], append_items]
    index: Annotated[Externalized[dict[Any, Any]], merge_keys]
    last: Annotated[Externalized[Any], replace_value]
    total: Annotated[Externalized[int], operator.add]
    log: Annotated[Inline[list[str]], append_items]
    plain: Externalized[Any]


class CountingStore(MemoryStore):
    """A store that counts the objects that are read from it."""

    reads = 0

    def read(self, ids: Any) -> list[Object]:
        wanted = list(ids)
        self.reads += len(wanted)
        return super().read(wanted)


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


@pytest.fixture
def adapter(store: CountingStore) -> StateAdapter:
    return StateAdapter(Merged, backend=store)


def reduced(adapter: StateAdapter, name: str, left: Any, right: Any) -> Any:
    """Two updates, reduced as a framework would, and read."""
    updates = [adapter.externalize({name: value})[name] for value in (left, right)]
    return adapter.hydrate({name: adapter.reducers()[name](*updates)})[name]


def test_lists_are_appended_and_equal_items_stay() -> None:
    assert append_items([1, 2], [2, 3]) == [1, 2, 2, 3]


def test_dicts_are_merged_and_the_later_value_wins() -> None:
    assert merge_keys({"a": 1, "b": 1}, {"b": 2, "c": 2}) == {"a": 1, "b": 2, "c": 2}


def test_a_value_is_replaced_only_where_that_was_asked_for(adapter: StateAdapter) -> None:
    assert replace_value(1, 2) == 2
    assert "plain" not in adapter.reducers()


def test_a_reducer_refuses_what_it_cannot_join() -> None:
    with pytest.raises(InvalidInput, match="a list and a str"):
        append_items([1], "text")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="a dict and a list"):
        merge_keys({}, [])  # type: ignore[arg-type]


def test_reducers_do_not_change_what_they_are_given() -> None:
    left, right = [1], [2]
    append_items(left, right)

    assert (left, right) == ([1], [2])


@pytest.mark.parametrize(
    ("name", "left", "right", "joined"),
    [
        ("docs", [{"hash": "x"}], [{"hash": "x"}], [{"hash": "x"}, {"hash": "x"}]),
        ("docs", [], [1], [1]),
        ("docs", [1], [], [1]),
        ("index", {1: "a"}, {(1, 2): "b", 1: "c"}, {1: "c", (1, 2): "b"}),
        ("index", {"b": 1}, {"a": 2}, {"b": 1, "a": 2}),
        ("last", [1], [2], [2]),
        ("total", 1, 2, 3),
    ],
)
def test_references_are_reduced_to_what_their_values_would_be(
    adapter: StateAdapter, name: str, left: Any, right: Any, joined: Any
) -> None:
    found = reduced(adapter, name, left, right)

    assert found == joined
    if isinstance(joined, dict):
        assert list(found) == list(joined)


def test_inline_fields_are_reduced_as_values(adapter: StateAdapter) -> None:
    assert adapter.reducers()["log"](["a"], ["b"]) == ["a", "b"]


def test_a_reduced_reference_equals_that_of_the_whole_value(
    adapter: StateAdapter, store: CountingStore
) -> None:
    left, right = list(range(5000)), list(range(20))
    updates = [adapter.externalize({"docs": value})["docs"] for value in (left, right)]
    place = adapter.reducers()["docs"](*updates)

    whole = Merged(backend=store, docs=left + right).ref("docs")
    assert ContentRef.from_dict(place["ropewalk_ref"]) == whole
    assert store.check(read_data=True).ok


@pytest.mark.parametrize(
    ("name", "left", "right"),
    [
        ("docs", [{"id": n, "text": "x" * 100} for n in range(20_000)], [{"id": "new"}]),
        ("index", {f"{n:05}": "x" * 100 for n in range(20_000)}, {"zzzzz": 1}),
    ],
)
def test_a_large_value_on_the_left_is_not_loaded(
    adapter: StateAdapter, store: CountingStore, name: str, left: Any, right: Any
) -> None:
    before = adapter.externalize({name: left})[name]
    store.reads = 0
    adapter.reducers()[name](before, right)

    assert store.reads < 30


def test_a_long_update_is_reduced_too(adapter: StateAdapter) -> None:
    found = reduced(adapter, "docs", list(range(1000)), list(range(1000)))

    assert found == list(range(1000)) * 2


def test_a_value_that_is_no_reference_yet_is_reduced_too(adapter: StateAdapter) -> None:
    place = adapter.reducers()["docs"]([1], [2])

    assert adapter.hydrate({"docs": place})["docs"] == [1, 2]


def test_a_stored_value_of_the_wrong_type_is_refused(adapter: StateAdapter) -> None:
    with pytest.raises(InvalidInput):
        reduced(adapter, "docs", {"a": 1}, [1])
    with pytest.raises(InvalidInput):
        reduced(adapter, "index", [1], {"a": 1})
    with pytest.raises(InvalidInput):
        reduced(adapter, "docs", [1], {"a": 1})


def test_an_update_that_cannot_be_stored_is_refused(adapter: StateAdapter) -> None:
    left = adapter.externalize({"docs": [1]})["docs"]

    with pytest.raises(NotStorable):
        adapter.reducers()["docs"](left, [print])


def test_content_that_is_gone_is_missing(adapter: StateAdapter, store: CountingStore) -> None:
    left = adapter.externalize({"docs": list(range(1000))})["docs"]
    release(ContentRef.from_dict(left["ropewalk_ref"]), store)
    store.gc(recent=1)

    with pytest.raises(MissingContent):
        adapter.reducers()["docs"](left, [1])


KEYS = st.text(max_size=5)
VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=20) | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)


@given(st.lists(VALUES, max_size=40), st.lists(VALUES, max_size=10))
def test_any_two_lists_are_reduced_as_they_would_be_joined(
    left: list[Any], right: list[Any]
) -> None:
    with MemoryStore() as store:
        assert reduced(StateAdapter(Merged, backend=store), "docs", left, right) == left + right


@given(
    st.dictionaries(st.text(max_size=3) | st.integers(0, 9), VALUES, max_size=20),
    st.dictionaries(st.text(max_size=3) | st.integers(0, 9), VALUES, max_size=5),
)
def test_any_two_dicts_are_reduced_as_they_would_be_merged(
    left: dict[Any, Any], right: dict[Any, Any]
) -> None:
    with MemoryStore() as store:
        found = reduced(StateAdapter(Merged, backend=store), "index", left, right)

    assert found == {**left, **right} and list(found) == list({**left, **right})
