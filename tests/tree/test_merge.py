"""A merge has the changes of both sides, or says where it cannot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ropewalk.codec import Field
from ropewalk.errors import InvalidInput, MergeConflict
from ropewalk.tree import ABSENT, Map, ObjectId, get, merge
from tests.sample_types import Note, Person, Point
from tests.strategies import same
from tests.tree.naive import Maker, NaiveMerge, content, keep, token
from tests.tree.support import Objects, root_of, small_nodes, stored

_SEEDS = st.integers(0, 2**32)
_TIMES = st.integers(0, 4)
_FEW = settings(max_examples=max(settings().max_examples // 2, 10))


class Sides:
    """Base, ours and theirs in one store that counts what is read."""

    def __init__(self, *values: Any) -> None:
        self.objects = Objects()
        self.roots: list[ObjectId | None] = []
        for value in values:
            root, objects = (None, {}) if value is ABSENT else stored(value)
            self.objects.update(objects)
            self.roots.append(root)
        self.count = 0

    def read(self, ids: Any) -> Any:
        self.count += len(ids)
        return self.objects.read(ids)

    def merge(self, mergers: Mapping[Any, Any] | None = None) -> ObjectId:
        base, ours, theirs = self.roots
        assert ours is not None and theirs is not None
        return keep(self.objects, merge(base, ours, theirs, self.read, mergers=mergers))


def merged(base: Any, ours: Any, theirs: Any, mergers: Mapping[Any, Any] | None = None) -> Any:
    """The merge of plain values; its root is the one that a writer gives it."""
    sides = Sides(base, ours, theirs)
    root = sides.merge(mergers)
    value = sides.objects.load(root)

    assert root == root_of(value)
    return value


def conflicts(base: Any, ours: Any, theirs: Any, mergers: Any = None) -> list[tuple[Any, ...]]:
    """The conflicts of a merge that fails."""
    with pytest.raises(MergeConflict) as caught:
        merged(base, ours, theirs, mergers)
    return [tuple(one)[:4] for one in caught.value.conflicts]


def outcome(base: Any, ours: Any, theirs: Any) -> tuple[Any, list[Any]]:
    """What a merge makes, or which paths it cannot merge."""
    try:
        return merged(base, ours, theirs), []
    except MergeConflict as exc:
        return None, sorted(token(one.path) for one in exc.conflicts)


# As a naive merge does it.


@given(seed=_SEEDS, ours=_TIMES, theirs=_TIMES)
def test_agrees_with_a_naive_merge(seed: int, ours: int, theirs: int) -> None:
    maker, naive = Maker(seed), NaiveMerge()
    base = maker.value()
    left, right = maker.changed(base, ours), maker.changed(base, theirs)
    expected = naive.merge(base, left, right)
    with small_nodes():
        value, found = outcome(base, left, right)

    assert found == sorted(naive.conflicts)
    assert found or same(value, expected)


@_FEW
@given(seed=_SEEDS, ours=_TIMES, theirs=_TIMES)
def test_small_and_large_nodes_give_the_same_merge(seed: int, ours: int, theirs: int) -> None:
    maker = Maker(seed)
    base = maker.value()
    left, right = maker.changed(base, ours), maker.changed(base, theirs)
    value, found = outcome(base, left, right)
    with small_nodes():
        in_small_nodes, others = outcome(base, left, right)

    assert found == others
    assert same(value, in_small_nodes)


@_FEW
@given(seed=_SEEDS, ours=_TIMES, theirs=_TIMES)
def test_sides_may_change_places(seed: int, ours: int, theirs: int) -> None:
    maker = Maker(seed)
    base = maker.value()
    left, right = maker.changed(base, ours), maker.changed(base, theirs)
    with small_nodes():
        one, found = outcome(base, left, right)
        other, others = outcome(base, right, left)

    assert bool(found) == bool(others)
    assert content(one) == content(other)


@_FEW
@given(seed=_SEEDS, times=_TIMES)
def test_a_side_without_changes_leaves_the_other_as_it_is(seed: int, times: int) -> None:
    maker = Maker(seed)
    base = maker.value()
    changed = maker.changed(base, times)
    with small_nodes():
        as_ours, as_theirs = merged(base, changed, base), merged(base, base, changed)
        as_both = merged(base, changed, changed)

    assert same(as_ours, changed)
    assert same(as_theirs, changed)
    assert same(as_both, changed)


# What conflicts, and what does not.


def test_changes_of_different_keys_come_together() -> None:
    base = {"a": 1, "b": {"c": 2, "d": 3}}
    ours = {"a": 1, "b": {"c": 20, "d": 3}}
    theirs = {"a": 1, "b": {"c": 2, "d": 30}}

    assert merged(base, ours, theirs) == {"a": 1, "b": {"c": 20, "d": 30}}


def test_every_conflict_is_listed_with_its_three_values() -> None:
    base = {"a": 1, "b": {"c": [1]}, "d": 5, "e": 0}
    ours = {"a": 2, "b": {"c": [2]}, "d": 5, "e": 1}
    theirs = {"a": 3, "b": {"c": [3]}, "d": 6, "e": 1}

    assert conflicts(base, ours, theirs) == [
        (("a",), 1, 2, 3),
        (("b", "c", 0), 1, 2, 3),
    ]


def test_a_conflict_says_where_and_what_to_do() -> None:
    with pytest.raises(MergeConflict) as caught:
        merged({"a": 1}, {"a": 2}, {"a": 3})

    assert str(caught.value) == (
        '1 path(s) changed on both sides: value["a"] (both sides changed it). '
        "Choose a merger for them, or settle them by hand; nothing was changed."
    )


@pytest.mark.parametrize(("ours", "theirs"), [(2, 2.0), (2, "2"), (True, 1)])
def test_changes_that_python_takes_for_equal_conflict(ours: Any, theirs: Any) -> None:
    ((path, *values),) = conflicts({"a": None}, {"a": ours}, {"a": theirs})

    assert path == ("a",)
    assert same(values, [None, ours, theirs])


def test_a_removed_and_a_changed_key_conflict() -> None:
    base, removed, changed = {"a": 1, "b": 2}, {"b": 2}, {"a": 5, "b": 2}

    assert conflicts(base, removed, changed) == [(("a",), 1, ABSENT, 5)]
    assert conflicts(base, changed, removed) == [(("a",), 1, 5, ABSENT)]


def test_a_removed_dict_and_one_changed_inside_conflict_as_a_whole() -> None:
    base, changed = {"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}

    assert conflicts(base, {}, changed) == [(("a",), {"b": 1, "c": 2}, ABSENT, {"b": 1, "c": 3})]


def test_a_key_that_both_removed_is_gone() -> None:
    assert merged({"a": 1, "b": 2, "c": 3}, {"b": 2, "c": 4}, {"b": 2, "c": 3}) == {"b": 2, "c": 4}


def test_one_key_added_by_both_with_one_value_is_no_conflict() -> None:
    assert merged({}, {"a": [1], "b": 2}, {"a": [1], "c": 3}) == {"a": [1], "b": 2, "c": 3}


def test_one_key_added_by_both_with_two_values_is_a_conflict() -> None:
    assert conflicts({}, {"a": 1}, {"a": 2}) == [(("a",), ABSENT, 1, 2)]


def test_dicts_that_both_created_come_together_by_key() -> None:
    ours, theirs = {"x": {"a": 1, "b": {"c": 1}}}, {"x": {"b": {"d": 2}}}

    assert merged({}, ours, theirs) == {"x": {"a": 1, "b": {"c": 1, "d": 2}}}
    assert merged({"x": 5}, ours, theirs) == {"x": {"a": 1, "b": {"c": 1, "d": 2}}}


def test_without_a_base_everything_was_added() -> None:
    assert merged(ABSENT, {"a": 1, "s": {1}}, {"b": 2, "s": {2}}) == {"a": 1, "s": {1, 2}, "b": 2}
    assert conflicts(ABSENT, {"a": 1}, {"a": 2}) == [(("a",), ABSENT, 1, 2)]


def test_lists_that_both_created_conflict() -> None:
    assert conflicts({}, {"x": [1]}, {"x": [2]}) == [(("x",), ABSENT, [1], [2])]


def test_two_types_conflict() -> None:
    assert conflicts({"x": []}, {"x": [1]}, {"x": (1,)}) == [(("x",), [], [1], (1,))]


def test_values_without_parts_conflict_at_the_top() -> None:
    assert conflicts(1, 2, 3) == [((), 1, 2, 3)]


def test_sets_merge_by_member() -> None:
    base = {1, 2, 3, 4}

    assert merged(base, {1, 2, 3, 5}, {2, 3, 4, 6}) == {2, 3, 5, 6}
    assert type(merged(frozenset({1}), frozenset({2}), frozenset({1, 3}))) is frozenset


def test_objects_merge_by_field() -> None:
    base, ours, theirs = Note("a", [1]), Note("b", [1]), Note("a", [1, 2])

    assert merged(base, ours, theirs) == Note("b", [1, 2])
    assert merged(Point(1, 2), Point(5, 2), Point(1, 6)) == Point(5, 6)


def test_a_conflict_in_a_field_has_the_field_in_its_path() -> None:
    ((path, *_),) = conflicts({"n": Note("a")}, {"n": Note("b")}, {"n": Note("c")})

    assert path == ("n", Field("text"))
    assert type(path[1]) is Field


def test_models_merge_although_each_side_set_another_field() -> None:
    base = Person(name="a")
    ours, theirs = base.model_copy(), base.model_copy()
    ours.age = 5
    theirs.name = "b"
    value = merged(base, ours, theirs)

    assert same(value, Person(name="b", age=5))


# Lists.


def test_lists_merge_by_item() -> None:
    base = ["a", "b", "c", "d", "e"]

    assert merged(base, ["A", "b", "c", "d", "e"], ["a", "b", "c", "d", "E"]) == list("AbcdE")
    assert merged(base, ["b", "c", "d", "e"], ["a", "b", "c", "x", "d", "e"]) == list("bcxde")
    assert merged(base, [*base, "f"], ["z", *base]) == ["z", *base, "f"]


def test_changes_beside_each_other_do_not_conflict() -> None:
    base = ["a", "b", "c"]

    assert merged(base, ["A", "b", "c"], ["a", "B", "c"]) == ["A", "B", "c"]
    assert merged(base, ["a", "x", "b", "c"], ["a", "B", "c"]) == ["a", "x", "B", "c"]
    assert merged(base, ["A", "b", "c"], ["a", "x", "b", "c"]) == ["A", "x", "b", "c"]


def test_one_item_changed_inside_by_both_merges_inside() -> None:
    base = [{"id": 1, "a": 0, "b": 0}, {"id": 2}]
    ours = ["new", {"id": 1, "a": 1, "b": 0}, {"id": 2}]
    theirs = [{"id": 1, "a": 0, "b": 1}, {"id": 2}]

    assert conflicts(base, ours, theirs)[0][0] == ()
    assert merged(base, ours[1:], theirs) == [{"id": 1, "a": 1, "b": 1}, {"id": 2}]


def test_a_conflict_in_a_list_has_the_index_of_ours() -> None:
    base, ours, theirs = ["a", "b", "c"], ["x", "a", "b", "1"], ["a", "b", "2"]

    assert conflicts(base, ours, theirs) == [((3,), "c", "1", "2")]


def test_different_items_at_one_place_are_a_conflict_of_the_list() -> None:
    assert conflicts(["a"], ["a", "b"], ["a", "c"]) == [((), ["a"], ["a", "b"], ["a", "c"])]


def test_equal_items_at_one_place_are_one_insertion() -> None:
    assert merged(["a"], ["a", "b"], ["a", "b"]) == ["a", "b"]


def test_items_that_both_may_have_inserted_are_not_there_twice() -> None:
    base, ours, theirs = ["a", "z"], ["a", "b", "z"], ["a", "b", "y"]

    assert conflicts(base, ours, theirs) == [((), base, ours, theirs)]
    assert conflicts(base, theirs, ours) == [((), base, theirs, ours)]


def test_a_conflict_of_a_list_hides_those_of_its_items() -> None:
    base, ours, theirs = ["a", "b", "c"], ["1", "b", "c", "x"], ["2", "b", "c", "y"]

    assert [path for path, *_ in conflicts(base, ours, theirs)] == [()]


def test_tuples_stay_tuples() -> None:
    assert merged((1, 2, 3), (9, 2, 3), (1, 2, 8)) == (9, 2, 8)


# The order of keys.


def test_keys_are_in_the_order_of_ours_and_then_of_theirs() -> None:
    value = merged({"m": 0}, {"z": 1, "m": 0, "a": 2}, {"y": 3, "m": 0, "b": 4})

    assert list(value) == ["z", "m", "a", "y", "b"]


def test_keys_are_in_the_order_of_theirs_where_ours_left_it_alone() -> None:
    value = merged({"a": 1, "b": 2}, {"a": 5, "b": 2}, {"c": 3, "b": 2, "a": 1})

    assert list(value.items()) == [("c", 3), ("b", 2), ("a", 5)]


def test_an_order_that_both_changed_is_that_of_ours() -> None:
    value = merged({"a": 1, "b": 2, "c": 3}, {"b": 2, "a": 1, "c": 3}, {"c": 3, "b": 2, "a": 1})

    assert list(value) == ["b", "a", "c"]


@pytest.mark.parametrize("count", [3, 30, 3_000])
def test_keys_that_one_side_removed_leave_the_others_in_order(count: int) -> None:
    base = {f"key {number}": number for number in range(count)}
    backwards = dict(reversed(base.items()))
    ours, theirs = backwards | {"ours": 1}, {k: v for k, v in base.items() if v != 1}
    value = merged(base, ours, theirs)

    assert list(value) == [key for key in ours if key != "key 1"]


# Keys that Python takes for the same.


@pytest.mark.parametrize(("ours", "theirs"), [(1, True), (True, 1.0), ((1,), (True,))])
def test_keys_that_a_dict_cannot_hold_together_conflict(ours: Any, theirs: Any) -> None:
    ((path, base, our, their),) = conflicts({"a": 0}, {"a": 0, ours: 5}, {"a": 0, theirs: 6})

    assert token(path) == token((theirs,))
    assert (base, our, their) == (ABSENT, ABSENT, 6)


def test_members_that_a_set_cannot_hold_together_conflict() -> None:
    ((path, *values),) = conflicts({"s": {"a"}}, {"s": {"a", 1}}, {"s": {"a", True}})

    assert token(path) == token(("s", True))
    assert values == [ABSENT, ABSENT, True]


def test_a_key_may_give_way_to_one_that_equals_it() -> None:
    value = merged({1: "a", "x": 0}, {1: "a", "x": 5}, {True: "a", "x": 0})

    assert same(value, {True: "a", "x": 5})


# Large values: what is read and written follows the changes.

_LIST = [f"item {number}" for number in range(20_000)]
_SORTED = {f"{number:05}": number for number in range(20_000)}
_DICT = dict(reversed(_SORTED.items()))
_SET = {f"member {number}" for number in range(20_000)}


@pytest.mark.parametrize(
    ("base", "ours", "theirs"),
    [
        (_LIST, [*_LIST[:400], "x", *_LIST[401:]], [*_LIST[:9_000], "y", *_LIST[9_000:]]),
        (_DICT, _DICT | {"00400": "x"}, _DICT | {"09000": "y"}),
        (_DICT, _DICT | {"00400": "x"}, _DICT | {"new": "y"}),
        (_DICT, _DICT | {"old": "x"}, _DICT | {"new": "y"}),
        (_SORTED, _SORTED | {"00400": "x"}, _SORTED | {"zzzzz": "y"}),
        (_SORTED, _SORTED | {"00400": "x"}, {k: v for k, v in _SORTED.items() if v != 9}),
        (_SET, _SET | {"x"}, (_SET | {"y"}) - {"member 9"}),
    ],
    ids=["list", "values", "new key", "new keys", "sorted", "removed", "set"],
)
def test_two_changes_of_many_read_and_write_few_objects(base: Any, ours: Any, theirs: Any) -> None:
    sides = Sides(base, ours, theirs)
    before = len(sides.objects)
    root = sides.merge()

    assert sides.count < 120
    assert len(sides.objects) - before < 16
    assert root == root_of(NaiveMerge().merge(base, ours, theirs))


def test_a_key_removed_from_many_writes_few_objects() -> None:
    theirs = {key: value for key, value in _DICT.items() if value != 9_000}
    sides = Sides(_DICT, _DICT | {"new": 1}, theirs)
    before = len(sides.objects)
    root = sides.merge()

    assert len(sides.objects) - before < 16
    assert root == root_of(theirs | {"new": 1})


def test_a_merge_that_changes_nothing_makes_nothing() -> None:
    sides = Sides({"a": 1, "b": 1}, {"a": 2, "b": 3}, {"a": 2, "b": 1})
    base, ours, theirs = sides.roots
    assert ours is not None and theirs is not None
    result = merge(base, ours, theirs, sides.read)

    assert (result.root, result.objects, result.needs) == (ours, [], [ours])


# Maps.


def test_maps_merge_by_key_and_stay_maps() -> None:
    objects = Objects()
    empty = keep(objects, Map.empty())
    base = keep(objects, Map(empty, objects.read).edit({1: "a", "n": 1}))
    ours = keep(objects, Map(base, objects.read).edit({True: "b", "n": 2}))
    theirs = keep(objects, Map(base, objects.read).edit({1.0: "c", "n": 5}))
    root = keep(objects, merge(base, ours, theirs, objects.read, mergers={"n": "add"}))
    value = Map(root, objects.read)

    assert [(repr(key), held) for key, held in value.items()] == [
        ("1", "a"),
        ("'n'", 6),
        ("True", "b"),
        ("1.0", "c"),
    ]


def test_a_deep_value_merges_inside() -> None:
    def deep(leaf: Any) -> Any:
        for _ in range(200):
            leaf = [leaf]
        return leaf

    value = merged(deep({"a": 1, "b": 1}), deep({"a": 2, "b": 1}), deep({"a": 1, "b": 2}))

    assert get(root_of(value), (0,) * 200, stored(value)[1].read) == {"a": 2, "b": 2}


def test_the_top_cannot_be_removed() -> None:
    with pytest.raises(InvalidInput, match="top"):
        merged(1, 2, 3, {(): lambda base, ours, theirs: ABSENT})
