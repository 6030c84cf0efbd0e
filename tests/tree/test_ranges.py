"""Pairs of a `Map` are read from a key or a place on, and no further than they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.errors import FormatError, NotStorable
from ropewalk.tree import Kind, Map, Object, ObjectId
from tests.tree.naive import encode, keep
from tests.tree.support import Objects, small_nodes


class Counted(Objects):
    """Objects that know how many of them were read, and in how many steps."""

    def __init__(self) -> None:
        super().__init__()
        self.read_ids: list[ObjectId] = []
        self.steps = 0

    def read(self, ids: Sequence[ObjectId]) -> list[Object]:
        self.read_ids += ids
        self.steps += 1
        return super().read(ids)


def made(plain: dict[Any, Any]) -> tuple[Map, Counted]:
    objects = Counted()
    root = keep(objects, Map.empty())
    root = keep(objects, Map(root, objects.read).edit(plain))
    objects.read_ids.clear()
    objects.steps = 0
    return Map(root, objects.read), objects


_NUMBERS = st.dictionaries(st.integers(0, 2**33), st.text(max_size=40), max_size=120)
_BOUNDS = st.none() | st.integers(0, 2**33)


@given(plain=_NUMBERS, start=_BOUNDS, stop=_BOUNDS, reverse=st.booleans(), data=st.data())
def test_a_range_is_what_a_sorted_dict_has_there(
    plain: dict[int, str], start: int | None, stop: int | None, reverse: bool, data: st.DataObject
) -> None:
    if plain:
        start = data.draw(st.sampled_from([start, *plain]))
        stop = data.draw(st.sampled_from([stop, *plain]))
    low = 0 if start is None else start
    high = 2**64 if stop is None else stop
    expected = sorted(pair for pair in plain.items() if low <= pair[0] < high)
    with small_nodes():
        found = list(made(plain)[0].range(start, stop, reverse=reverse))

    assert found == (expected[::-1] if reverse else expected)


@given(plain=_NUMBERS, start=st.integers(-200, 200), stop=st.integers(-200, 200))
def test_a_slice_is_that_of_the_list_of_pairs(plain: dict[int, str], start: int, stop: int) -> None:
    with small_nodes():
        found = list(made(plain)[0].slice(start, stop))

    assert found == sorted(plain.items())[start:stop]


@given(values=st.lists(st.sampled_from([1, "x", "x" * 300, ["y" * 90] * 9]), max_size=60))
def test_values_that_stand_apart_come_with_the_others(values: list[Any]) -> None:
    with small_nodes():
        found, _ = made(dict(enumerate(values)))

        assert list(found.range()) == list(enumerate(values))
        assert list(found.range(reverse=True)) == list(enumerate(values))[::-1]
        assert list(found.slice(0, 60)) == list(enumerate(values))


def test_keys_of_all_kinds_are_in_the_order_of_their_encodings() -> None:
    keys: list[Any] = ["a", "b", b"b", 7, -7, 1.5, (1, 2), True]
    found, _ = made(dict.fromkeys(keys, 0))
    ordered = sorted(keys, key=encode)

    assert [key for key, _ in found.range()] == ordered
    assert [key for key, _ in found.range(ordered[2], ordered[6])] == ordered[2:6]


def test_the_newest_of_many_take_few_reads() -> None:
    found, objects = made({number: f"message {number}" * 9 for number in range(20_000)})
    newest = list(islice(found.range(reverse=True), 20))

    assert [key for key, _ in newest] == list(range(19_999, 19_979, -1))
    assert len(objects.read_ids) <= 12


def test_a_slice_in_the_middle_fetches_its_leaves_at_once() -> None:
    found, objects = made({number: f"message {number}" * 9 for number in range(20_000)})
    middle = list(found.slice(10_000, 10_200))

    assert [key for key, _ in middle] == list(range(10_000, 10_200))
    # The root, an index, and the leaves; or two indexes, where the slice lies over both.
    assert objects.steps <= 5
    assert len(objects.read_ids) <= 20


def test_a_whole_range_reads_every_node_once() -> None:
    found, objects = made({number: f"message {number}" * 9 for number in range(20_000)})

    assert sum(1 for _ in found.range()) == 20_000
    assert len(objects.read_ids) == len(set(objects.read_ids))
    assert objects.steps <= len(objects.read_ids) / 10


def test_large_values_that_nobody_asks_for_are_not_read() -> None:
    found, objects = made({number: f"{number}" * 50_000 for number in range(100)})
    key, _ = next(found.range(reverse=True))

    assert key == 99
    assert len(objects.read_ids) <= 12


@given(plain=_NUMBERS, others=st.lists(st.integers(0, 2**33), max_size=5), data=st.data())
def test_what_is_picked_is_what_is_there(
    plain: dict[int, str], others: list[int], data: st.DataObject
) -> None:
    known = data.draw(st.lists(st.sampled_from(sorted(plain)))) if plain else []
    with small_nodes():
        found = list(made(plain)[0].pick([*known, *others]))

    assert found == sorted(pair for pair in plain.items() if pair[0] in {*known, *others})


def test_many_keys_are_picked_in_as_many_steps_as_there_are_levels() -> None:
    found, objects = made({number: f"message {number}" * 9 for number in range(20_000)})
    picked = list(found.pick(range(0, 20_000, 1_000)))

    assert [key for key, _ in picked] == list(range(0, 20_000, 1_000))
    assert objects.steps <= 4


@given(one=_NUMBERS, other=_NUMBERS)
def test_two_maps_differ_where_two_dicts_do(one: dict[int, str], other: dict[int, str]) -> None:
    with small_nodes():
        first, objects = made({**one, 7: "same"})
        second, others = made({**one, **other})
        objects.update(others)
        found = first.differing(first.version(second.root))

    keys = {*one, *other, 7}
    left, right = {**one, 7: "same"}, {**one, **other}
    assert found == sorted(key for key in keys if left.get(key) != right.get(key))


def test_one_more_of_many_is_found_by_few_reads() -> None:
    found, objects = made({number: f"message {number}" * 9 for number in range(20_000)})
    longer = found.version(keep(objects, found.edit({20_000: "new"})))
    objects.read_ids.clear()

    assert longer.differing(found.version(found.root)) == [20_000]
    assert len(objects.read_ids) <= 8


def test_values_of_a_range_are_the_callers_own() -> None:
    found, _ = made({1: [1]})
    next(found.range())[1].append(2)

    assert list(found.range()) == [(1, [1])]


@pytest.mark.parametrize("bounds", [(object(), None), (None, [object()])])
def test_a_bound_that_can_be_no_key_is_refused(bounds: tuple[Any, Any]) -> None:
    found, _ = made({1: 1})

    with pytest.raises(NotStorable):
        found.range(*bounds)


def test_a_leaf_that_is_not_what_its_index_says_is_refused() -> None:
    found, objects = made({number: f"message {number}" * 9 for number in range(2_000)})
    leaves = [one for one in objects.values() if one.kind == Kind.PAIRS]
    first, second = leaves[0], min(leaves[1:], key=lambda one: len(one.payload))
    objects[first.id] = Object(first.id, second.kind, second.payload)

    with pytest.raises(FormatError):
        list(found.range())
