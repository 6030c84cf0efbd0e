"""Where two trees differ, how one list became another, and how two such changes combine."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.tree import changes as tree_runs
from ropewalk.tree.changes import (
    Hunk,
    Overlap,
    combine,
    differing,
    hunks,
    hunks_of,
    kept_items,
    new_items,
    single,
    split,
    split_nodes,
)
from ropewalk.tree.read import Container, open_part, part_of
from tests.tree.naive import encode
from tests.tree.support import Objects, small_nodes, stored

_ITEMS = st.lists(st.integers(0, 5), max_size=40)
_UNIQUE = st.lists(st.integers(0, 60), max_size=40, unique=True)


def applied(old: list[Any], found: list[Hunk]) -> list[Any]:
    """What hunks make of a list."""
    made = list(old)
    for hunk in reversed(found):
        assert made[hunk.start : hunk.stop] == hunk.old
        made[hunk.start : hunk.stop] = hunk.new
    return made


def opened(objects: Objects, value: Any) -> Container:
    root, others = stored(value)
    objects.update(others)
    found = open_part(part_of(root, objects.read), objects.read)
    assert found is not None
    return found


# Trees.


@given(old=_ITEMS, new=_ITEMS)
def test_hunks_of_trees_make_one_list_of_the_other(old: list[int], new: list[int]) -> None:
    objects = Objects()
    with small_nodes():
        left, right = opened(objects, old), opened(objects, new)
        found = list(hunks(left.view, right.view, objects.read))
    plain = [
        Hunk(h.start, [e.body for e in h.old], h.new_start, [e.body for e in h.new]) for h in found
    ]

    assert applied(list(map(encode, old)), plain) == list(map(encode, new))
    assert all(one.stop < other.start for one, other in pairwise(found))
    for hunk in plain:
        assert list(map(encode, new))[hunk.new_start :][: len(hunk.new)] == hunk.new


@given(old=st.sets(st.integers(0, 400)), new=st.sets(st.integers(0, 400)))
def test_entries_that_differ_are_those_of_one_side_only(old: set[int], new: set[int]) -> None:
    objects = Objects()
    with small_nodes():
        for make in (dict.fromkeys, set):
            views = [opened(objects, make(one)).view for one in (old, new)]
            left, right = differing(views[0], views[1], objects.read)
            found = [[entry.key or entry.body for entry in side] for side in (left, right)]

            assert found == [sorted(map(encode, old - new)), sorted(map(encode, new - old))]


# Plain lists.


@given(old=_ITEMS, new=_ITEMS)
def test_hunks_make_one_list_of_the_other(old: list[int], new: list[int]) -> None:
    found = hunks_of(old, new)

    assert applied(old, found) == new
    assert all(one.stop < other.start for one, other in pairwise(found))
    assert bool(found) is (old != new)


@given(old=_ITEMS, new=_ITEMS)
def test_nodes_are_split_into_runs_that_cover_what_differs(old: list[int], new: list[int]) -> None:
    found = [Hunk(a, old[a:b], c, new[c:d]) for a, b, c, d in split_nodes(old, new)]

    assert applied(old, found) == new
    assert bool(found) is (old != new)


@given(old=_ITEMS, new=_ITEMS, most=st.sampled_from([0, 1, 5, 20]))
def test_long_lists_are_split_too(old: list[int], new: list[int], most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tree_runs, "_MOST_EDITS", most)
        found = hunks_of(old, new)

    assert applied(old, found) == new


@given(
    kept=_UNIQUE, more=st.lists(st.tuples(st.integers(0, 40), st.integers(100, 200)), max_size=9)
)
def test_items_that_only_came_are_all_that_is_told(kept: list[int], more: Any) -> None:
    new = list(kept)
    for at, item in more:
        new.insert(at, item)
    for most in (0, 500):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tree_runs, "_MOST_EDITS", most)
            found = hunks_of(kept, new)

        assert [hunk.old for hunk in found] == [[] for _ in found]
        assert sum(len(hunk.new) for hunk in found) == len(more)


@given(old=_ITEMS, new=_ITEMS)
def test_the_shortest_way_keeps_as_much_as_can_be_kept(old: list[int], new: list[int]) -> None:
    kept = kept_items(old, new, 1000)

    assert kept is not None
    assert [old[at] for at, _ in kept] == [new[at] for _, at in kept]
    assert all(a < b and c < d for (a, c), (b, d) in pairwise(kept))
    assert len(kept) == _longest_common(old, new)


def _longest_common(old: list[int], new: list[int]) -> int:
    row = [0] * (len(new) + 1)
    for item in old:
        above = row
        row = [0]
        for at, other in enumerate(new):
            row.append(above[at] + 1 if item == other else max(row[at], above[at + 1]))
    return row[-1]


def test_a_way_that_is_too_long_is_not_looked_for() -> None:
    assert kept_items([1, 2, 3], [4, 5, 6], 5) is None


def test_few_changes_of_a_very_long_list_are_told_one_by_one() -> None:
    old = list(range(30_000))
    new = [*old[:5], -1, *old[6:20_000], -2, *old[20_000:29_990], *old[29_991:]]

    assert split(old, new) == [
        (5, 6, 5, 6),
        (20_000, 20_000, 20_000, 20_001),
        (29_990, 29_991, 29_991, 29_991),
    ]


def test_very_long_lists_without_anything_alike_are_one_run() -> None:
    assert split(list(range(5_000)), list(range(5_000, 9_000))) == [(0, 5_000, 0, 4_000)]


def test_equal_items_give_runs_in_bounded_time() -> None:
    old, new = [0, 1] * 3_000, [1, 1, 0] * 2_000

    assert applied(old, hunks_of(old, new)) == new


def test_items_replaced_one_by_one_stand_apart() -> None:
    assert single([Hunk(3, [1, 2], 4, [8, 9]), Hunk(7, [5], 8, [])]) == [
        Hunk(3, [1], 4, [8]),
        Hunk(4, [2], 5, [9]),
        Hunk(7, [5], 8, []),
    ]


# Two changes of one list.


def combined(base: list[Any], ours: list[Any], theirs: list[Any]) -> list[Any]:
    made = list(ours)
    for step in reversed(combine(hunks_of(base, ours), hunks_of(base, theirs))):
        made[step.start : step.stop] = new_items(step)
    return made


@given(base=_ITEMS, other=_ITEMS)
def test_a_change_beside_none_is_taken_as_it_is(base: list[int], other: list[int]) -> None:
    assert combined(base, base, other) == other
    assert combined(base, other, base) == other
    assert combined(base, other, other) == other


@given(base=_ITEMS, ours=_ITEMS, theirs=_ITEMS)
def test_sides_may_change_places(base: list[int], ours: list[int], theirs: list[int]) -> None:
    def outcome(one: list[int], other: list[int]) -> Any:
        try:
            return combined(base, one, other)
        except Overlap:
            return "overlap"

    assert outcome(ours, theirs) == outcome(theirs, ours)


@given(first=_ITEMS, ours=_ITEMS, last=_ITEMS, theirs=_ITEMS)
def test_changes_on_two_sides_of_an_item_combine(
    first: list[Any], ours: list[Any], last: list[Any], theirs: list[Any]
) -> None:
    ends, others = [-one - 1 for one in last], [-one - 1 for one in theirs]
    base = [*first, "middle", *ends]

    assert combined(base, [*ours, "middle", *ends], [*first, "middle", *others]) == [
        *ours,
        "middle",
        *others,
    ]


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ("Abc", "aBc", "ABc"),
        ("Abc", "axbc", "Axbc"),
        ("xabc", "Abc", "xAbc"),
        ("ac", "abxc", "axc"),
        ("ac", "axbc", "axc"),
        ("bc", "ab", "b"),
        ("axbc", "axbc", "axbc"),
        ("ABc", "ABc", "ABc"),
        ("", "abcd", "d"),
    ],
)
def test_changes_that_touch_combine(ours: str, theirs: str, expected: str) -> None:
    assert combined(list("abc"), list(ours), list(theirs)) == list(expected)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("axbc", "aybc"),
        ("Abc", "Xbc"),
        ("c", "aBc"),
        ("c", "axbc"),
        ("axbc", "axyc"),
        ("xybc", "axbc"),
    ],
)
def test_changes_that_meet_overlap(ours: str, theirs: str) -> None:
    for one, other in ((ours, theirs), (theirs, ours)):
        with pytest.raises(Overlap):
            combined(list("abc"), list(one), list(other))
