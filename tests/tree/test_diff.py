"""A diff says what changed, all of it, and reads little."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ropewalk.codec import Field
from ropewalk.tree import Change, Map, ObjectId, diff
from tests.sample_types import Note, Person, Point
from tests.strategies import same, storable_values
from tests.tree.naive import Maker, apply_changes, content, diff_kinds, identical, keep, token
from tests.tree.support import Objects, root_of, small_nodes, stored

_SEEDS = st.integers(0, 2**32)
_FEW = settings(max_examples=max(settings().max_examples // 2, 10))


def changes(old: Any, new: Any) -> list[Change]:
    """The differences between two plain values."""
    before, objects = stored(old)
    after, others = stored(new)
    objects.update(others)
    return list(diff(before, after, objects.read))


def told(old: Any, new: Any) -> list[tuple[Any, str]]:
    """Where and how two values differ."""
    return [(change.path, change.kind) for change in changes(old, new)]


def only(old: Any, new: Any) -> Change:
    (change,) = changes(old, new)
    return change


class Counting:
    """Reads from memory, and counts."""

    def __init__(self, *values: Any) -> None:
        self.objects = Objects()
        self.roots: list[ObjectId] = []
        for value in values:
            root, objects = stored(value)
            self.objects.update(objects)
            self.roots.append(root)
        self.count = 0

    def read(self, ids: Any) -> Any:
        self.count += len(ids)
        return self.objects.read(ids)

    def diff(self) -> Iterator[Change]:
        return diff(self.roots[0], self.roots[1], self.read)


@given(seed=_SEEDS, times=st.integers(0, 5))
def test_agrees_with_a_naive_diff_of_values_without_lists(seed: int, times: int) -> None:
    maker = Maker(seed, lists=False)
    old = maker.value()
    new = maker.changed(old, times)
    with small_nodes():
        found = [(token(path), kind) for path, kind in told(old, new)]

    assert sorted(found) == sorted(diff_kinds(old, new))


@given(seed=_SEEDS, times=st.integers(1, 5))
def test_its_changes_make_the_new_value_of_the_old_one(seed: int, times: int) -> None:
    maker = Maker(seed)
    old = maker.value()
    new = maker.changed(old, times)
    with small_nodes():
        found = changes(old, new)
        applied = apply_changes(old, found)

    assert content(applied) == content(new)


@given(old=storable_values(), new=storable_values())
def test_its_changes_lead_from_any_value_to_any_other(old: Any, new: Any) -> None:
    with small_nodes():
        found = changes(old, new)
        applied = apply_changes(old, found)

    assert content(applied) == content(new)
    assert bool(found) is not identical(old, new)


@given(old=st.lists(st.integers(0, 3), max_size=60), new=st.lists(st.integers(0, 3), max_size=60))
def test_its_changes_lead_between_lists_full_of_equal_items(old: Any, new: Any) -> None:
    with small_nodes():
        applied = apply_changes(old, changes(old, new))

    assert applied == new


@_FEW
@given(seed=_SEEDS, times=st.integers(0, 4))
def test_small_and_large_nodes_give_the_same_changes(seed: int, times: int) -> None:
    maker = Maker(seed)
    old = maker.value()
    new = maker.changed(old, times)
    in_large_nodes = told(old, new)
    with small_nodes():
        in_small_nodes = told(old, new)

    assert in_small_nodes == in_large_nodes


def test_equal_values_give_no_change() -> None:
    assert told({"a": [1, {2}]}, {"a": [1, {2}]}) == []


@pytest.mark.parametrize("pair", [(1, 1.0), (1, True), (0.0, -0.0), (0, False), ("1", b"1")])
@pytest.mark.parametrize("wrap", [lambda one: one, lambda one: [one], lambda one: {"a": [one]}])
def test_values_that_python_takes_for_equal_are_a_change(pair: Any, wrap: Any) -> None:
    change = only(wrap(pair[0]), wrap(pair[1]))

    assert change.kind == "changed"
    assert same((change.old, change.new), pair)


def test_keys_that_python_takes_for_equal_are_two_keys() -> None:
    found = changes({1: "a"}, {True: "a"})

    assert [(change.kind, repr(change.path)) for change in found] == [
        ("removed", "(1,)"),
        ("added", "(True,)"),
    ]


def test_another_type_is_one_change_of_the_whole() -> None:
    change = only({"a": [1, 2]}, {"a": (1, 2)})

    assert (change.path, change.kind) == (("a",), "changed")
    assert (change.old, change.new) == ([1, 2], (1, 2))


def test_another_order_of_keys_is_told_with_both_lists_of_keys() -> None:
    change = only({"a": 1, "b": 2, "c": 3}, {"c": 3, "a": 1, "b": 2})

    assert (change.path, change.kind) == ((), "reordered")
    assert (change.old, change.new) == (["a", "b", "c"], ["c", "a", "b"])


def test_a_new_key_in_the_middle_does_not_reorder_the_others() -> None:
    assert told({"a": 1, "c": 3}, {"a": 1, "b": 2, "c": 3}) == [(("b",), "added")]


def test_an_added_value_has_no_old_one_and_a_removed_one_no_new_one() -> None:
    removed, added = changes({"a": 1}, {"b": 2})

    assert (removed.kind, removed.old, removed.new) == ("removed", 1, None)
    assert (added.kind, added.old, added.new) == ("added", None, 2)


def test_fields_of_objects_are_steps_of_their_own() -> None:
    old, new = {"note": Note("a", [1, Point(1, 2)])}, {"note": Note("a", [1, Point(1, 3)])}
    change = only(old, new)

    assert change.path == ("note", Field("tags"), 1, Field("y"))
    assert [type(step) for step in change.path] == [str, Field, int, Field]
    assert repr(change) == '<Change changed value["note"].tags[1].y>'


def test_a_field_of_a_model_that_is_set_for_the_first_time_is_a_change_of_the_field() -> None:
    old, new = Person(name="a"), Person(name="a")
    new.age = 5

    assert told(old, new) == [((Field("age"),), "changed")]


def test_models_that_differ_only_in_what_was_set_are_a_change_of_the_whole() -> None:
    assert told(Person(name="a"), Person(name="a", age=0)) == [((), "changed")]


def test_members_of_a_set_are_told_by_themselves() -> None:
    found = changes({"s": {1, "a"}}, {"s": {"a", (2, 3)}})

    assert [(change.path, change.kind) for change in found] == [
        (("s", 1), "removed"),
        (("s", (2, 3)), "added"),
    ]
    assert found[1].new == (2, 3)


@pytest.mark.parametrize("at", [0, 1, 700, 9_998, 9_999])
def test_one_change_in_a_long_list_is_one_path(at: int) -> None:
    old = [f"item {number}" for number in range(10_000)]
    new = [*old[:at], "other", *old[at + 1 :]]

    assert told(old, new) == [((at,), "changed")]


@pytest.mark.parametrize("at", [0, 1, 700, 9_999, 10_000])
def test_one_insertion_into_a_long_list_is_one_added_item(at: int) -> None:
    old = [f"item {number}" for number in range(10_000)]
    new = [*old[:at], "other", *old[at:]]

    assert told(old, new) == [((at,), "added")]
    assert told(new, old) == [((at,), "removed")]


@pytest.mark.parametrize("item", ["same", 0, None])
def test_one_insertion_into_a_list_of_equal_items_is_one_added_item(item: Any) -> None:
    old = [item] * 10_000
    (change,) = changes(old, [*old, item])

    assert change.kind == "added"
    assert told([*old[:5_000], "other", *old[5_000:]], old) == [((5_000,), "removed")]


@pytest.mark.parametrize("counts", [(0, 3_000), (1, 3_000), (30, 3_000), (300, 40_000)])
def test_a_small_and_a_large_list_are_compared_item_by_item(counts: tuple[int, int]) -> None:
    few, many = ([f"item {number}" for number in range(count)] for count in counts)
    found = told(few, many)

    assert found == [((at,), "added") for at in range(counts[0], counts[1])]


@pytest.mark.parametrize("counts", [(0, 3_000), (1, 3_000), (30, 3_000), (300, 40_000)])
def test_a_small_and_a_large_dict_are_compared_key_by_key(counts: tuple[int, int]) -> None:
    few, many = ({f"{number:05}": number for number in range(count)} for count in counts)
    found = told(many, few)

    assert found == [((f"{at:05}",), "removed") for at in range(counts[0], counts[1])]


_LIST = [f"item {number}" for number in range(20_000)]
_DICT = {f"key {number}": number for number in range(20_000)}
_SET = {f"member {number}" for number in range(20_000)}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (_LIST, [*_LIST[:9_000], "other", *_LIST[9_001:]]),
        (_LIST, [*_LIST[:9_000], "other", *_LIST[9_000:]]),
        (_LIST, _LIST[:-1]),
        (_DICT, _DICT | {"key 9000": "other"}),
        (_SET, _SET | {"other"}),
    ],
    ids=["item", "inserted", "removed", "value", "member"],
)
def test_one_change_of_many_reads_few_objects(old: Any, new: Any) -> None:
    counting = Counting(old, new)
    found = list(counting.diff())

    assert len(found) == 1
    assert counting.count < 60


def test_a_change_deep_inside_a_large_value_reads_few_objects() -> None:
    old: Any = {"a": [{"b": list(range(5_000))} for _ in range(20)]}
    new: Any = {
        "a": [*old["a"][:7], {"b": [*range(2_000), -1, *range(2_001, 5_000)]}, *old["a"][8:]]
    }
    counting = Counting(old, new)
    (change,) = counting.diff()

    assert change.path == ("a", 7, "b", 2_000)
    assert counting.count < 60


def test_values_are_loaded_only_when_they_are_asked_for() -> None:
    counting = Counting({"a": _LIST}, {"b": _LIST})
    found = list(counting.diff())
    read = counting.count

    assert read <= 2
    assert found[0].old == _LIST
    assert counting.count > read


def test_equal_roots_are_not_read() -> None:
    counting = Counting(_LIST)

    assert list(diff(counting.roots[0], counting.roots[0], counting.read)) == []
    assert counting.count == 0


def test_maps_are_compared_key_by_key() -> None:
    objects = Objects()
    empty = keep(objects, Map.empty())
    first = keep(objects, Map(empty, objects.read).edit({1: "a", "c": [1]}))
    old = keep(objects, Map(first, objects.read).edit({True: "b"}))
    second = keep(objects, Map(old, objects.read).edit({True: "x"}, remove=["c"]))
    new = keep(objects, Map(second, objects.read).edit({1.0: "d"}))
    found = list(diff(old, new, objects.read))

    assert [(repr(change.path), change.kind) for change in found] == [
        ("('c',)", "removed"),
        ("(True,)", "changed"),
        ("(1.0,)", "added"),
    ]


def test_a_map_and_a_dict_are_two_types() -> None:
    objects = Objects()
    empty = keep(objects, Map.empty())
    root, others = stored({})
    objects.update(others)
    (change,) = diff(root, empty, objects.read)

    assert (change.path, change.kind) == ((), "changed")
    assert root_of({}) == root
