"""Mergers: which one is for which path, and what each makes of two changes."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.codec import Field
from ropewalk.errors import InvalidInput, MergeConflict, NotStorable
from ropewalk.tree import ABSENT, CannotMerge, Merger
from tests.sample_types import Note, Point, Word
from tests.strategies import same
from tests.tree.support import small_nodes
from tests.tree.test_merge import Sides, conflicts, merged


def taking(answer: Any) -> Any:
    """A merger that always says the same."""
    return lambda base, ours, theirs: answer


def reasons(base: Any, ours: Any, theirs: Any, mergers: Any) -> list[str]:
    with pytest.raises(MergeConflict) as caught:
        merged(base, ours, theirs, mergers)
    return [one.reason for one in caught.value.conflicts]


# Which merger is for which path.


def test_a_text_stands_for_a_path_of_one_step() -> None:
    assert merged({"n": 1}, {"n": 2}, {"n": 3}, {"n": taking("x")}) == {"n": "x"}


def test_a_path_goes_through_dicts_lists_and_objects() -> None:
    base, ours, theirs = ({"a": [Note("t", {"n": number})]} for number in (0, 1, 2))
    rules = {("a", 0, Field("tags"), "n"): "add"}

    assert merged(base, ours, theirs, rules) == {"a": [Note("t", {"n": 3})]}
    assert merged(base, ours, theirs, {("a", 0, "tags", "n"): "add"}) == {
        "a": [Note("t", {"n": 3})]
    }


def test_a_path_to_a_container_decides_about_all_of_it() -> None:
    base, ours, theirs = {"a": {"b": 1, "c": 1}}, {"a": {"b": 2, "c": 1}}, {"a": {"b": 1, "c": 2}}

    assert merged(base, ours, theirs, {"a": "theirs"}) == theirs


def test_the_empty_path_is_the_top() -> None:
    assert merged(1, 2, 3, {(): "add"}) == 4


def test_a_prefix_is_for_everything_beneath_it_that_is_not_a_dict() -> None:
    base = {"counts": {"a": 1, "more": {"b": 1}}, "other": 1}
    ours = {"counts": {"a": 2, "more": {"b": 3}}, "other": 1}
    theirs = {"counts": {"a": 5, "more": {"b": 5}}, "other": 2}
    rules = {("counts", ...): "add"}

    assert merged(base, ours, theirs, rules) == {"counts": {"a": 6, "more": {"b": 7}}, "other": 2}
    assert conflicts({"x": 1}, {"x": 2}, {"x": 3}, rules) == [(("x",), 1, 2, 3)]


def test_a_prefix_without_steps_is_for_everything() -> None:
    assert merged({"a": 1}, {"a": 2}, {"a": 3}, {(...,): "ours"}) == {"a": 2}


def test_a_type_is_for_both_sides_being_exactly_of_it() -> None:
    rules = {int: "add"}

    assert merged({"a": 1}, {"a": 2}, {"a": 5}, rules) == {"a": 6}
    assert conflicts({"a": 1}, {"a": 2}, {"a": 5.0}, rules) == [(("a",), 1, 2, 5.0)]
    assert conflicts({"a": 5}, {"a": True}, {"a": False}, rules) == [(("a",), 5, True, False)]


@pytest.mark.parametrize("kind", [list, tuple, set, frozenset, dict, Note, str])
@pytest.mark.parametrize("size", [1, 5_000])
def test_every_type_may_have_a_merger(kind: Any, size: int) -> None:
    def value(number: int) -> Any:
        numbers = range(number, number + size)
        odd = {
            dict: dict.fromkeys(numbers),
            Note: Note(number, [*numbers]),
            str: f"{number}" * size,
        }
        return odd[kind] if kind in odd else kind(numbers)

    base, ours, theirs = (Point(value(number)) for number in (1, 2, 3))

    assert merged(base, ours, theirs, {kind: taking("merged")}) == Point("merged")


def test_a_path_goes_before_a_type_and_a_type_before_a_prefix() -> None:
    base, ours, theirs = ({"a": {"b": n, "c": n, "d": str(n)}} for n in (0, 1, 2))
    rules = {("a", ...): taking("prefix"), int: taking("type"), ("a", "b"): taking("path")}

    assert merged(base, ours, theirs, rules) == {"a": {"b": "path", "c": "type", "d": "prefix"}}


def test_a_long_prefix_goes_before_a_short_one() -> None:
    base, ours, theirs = ({"a": {"b": {"c": n}, "d": n}} for n in (0, 1, 2))
    rules = {(...,): taking(0), ("a", "b", ...): taking(2), ("a", ...): taking(1)}

    assert merged(base, ours, theirs, rules) == {"a": {"b": {"c": 2}, "d": 1}}


def test_a_rule_for_one_key_is_none_for_a_key_that_equals_it() -> None:
    rules = {(1,): "add"}

    assert merged({1: 1}, {1: 2}, {1: 3}, rules) == {1: 4}
    assert conflicts({True: 1}, {True: 2}, {True: 3}, rules) == [((True,), 1, 2, 3)]


def test_a_rule_may_be_for_any_key() -> None:
    nan = float("nan")
    base, ours, theirs = ({float("nan"): n, Word.YES: n, (1, "a"): n} for n in (0, 1, 2))
    rules = {(nan,): "add", Word.YES: "add", ((1, "a"),): "add"}
    value = merged(base, ours, theirs, rules)

    assert list(value.values()) == [3, 3, 3]


def test_a_merger_runs_only_where_both_sides_changed_something() -> None:
    never = {(...,): taking("never"), int: taking("never"), "a": taking("never")}

    assert merged({"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": 1, "b": 2}, never) == {"a": 2, "b": 2}


@pytest.mark.parametrize(
    "key",
    [
        5,
        None,
        ...,
        ["a"].__class__.__mro__,
        b"a",
        ("a", ..., "b"),
        (lambda: 1,),
        (..., ...),
        ("\ud800",),
    ],
)
def test_a_key_that_is_no_path_is_refused(key: Any) -> None:
    with pytest.raises(InvalidInput, match="a merger is for"):
        merged(1, 1, 1, {key: "ours"})


@pytest.mark.parametrize("merger", [None, 5, ("ours",), Merger("ours")])  # type: ignore[arg-type]
def test_what_is_neither_a_name_nor_a_function_is_refused(merger: Any) -> None:
    with pytest.raises(InvalidInput, match="a merger is a name or a function"):
        merged(1, 1, 1, {"a": merger})


def test_an_unknown_name_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(InvalidInput) as caught:
        merged(1, 1, 1, {"a": "sum"})

    assert str(caught.value) == (
        "there is no merger 'sum'; the named ones are ours, theirs, append, union, add, text"
    )


def test_rules_that_are_no_dict_are_refused() -> None:
    with pytest.raises(InvalidInput, match="a dict from paths or types"):
        merged(1, 1, 1, [("a", "ours")])  # type: ignore[arg-type]


# Functions.


def test_a_function_gets_base_ours_and_theirs() -> None:
    seen: list[Any] = []

    def note(*values: Any) -> str:
        seen.append(values)
        return "merged"

    rules = {(...,): note}
    assert merged({"a": 1}, {"a": [2]}, {"a": 3, "b": 0}, rules) == {"a": "merged", "b": 0}
    assert merged({}, {"a": 2}, {"a": 3}, rules) == {"a": "merged"}
    assert merged({"a": 1}, {}, {"a": 3}, rules) == {"a": "merged"}

    assert seen == [(1, [2], 3), (ABSENT, 2, 3), (1, ABSENT, 3)]


def test_a_function_may_remove_what_it_merges() -> None:
    rules = {("a", ...): taking(ABSENT)}
    base, ours, theirs = {"a": {"b": 1, "c": 0}}, {"a": {"b": 2, "c": 0}}, {"a": {"b": 3, "c": 0}}

    assert merged(base, ours, theirs, rules) == {"a": {"c": 0}}
    assert merged([1, "x"], [2, "x"], [3, "x"], {(0,): taking(ABSENT)}) == ["x"]


def test_a_function_may_change_what_it_got() -> None:
    def extend(base: Any, ours: Any, theirs: Any) -> Any:
        ours.extend(theirs)
        return ours

    assert merged({"a": []}, {"a": [1]}, {"a": [2]}, {"a": extend}) == {"a": [1, 2]}


def test_a_function_that_cannot_merge_leaves_a_conflict_with_its_reason() -> None:
    def refuse(base: Any, ours: Any, theirs: Any) -> Any:
        raise CannotMerge("the moon is not full")

    assert reasons({"a": 1}, {"a": 2}, {"a": 3}, {"a": refuse}) == ["the moon is not full"]


def test_another_error_of_a_function_goes_through() -> None:
    def fail(base: Any, ours: Any, theirs: Any) -> Any:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        merged({"a": 1}, {"a": 2}, {"a": 3}, {"a": fail})


def test_a_result_that_cannot_be_stored_is_refused_with_its_path() -> None:
    with pytest.raises(NotStorable) as caught:
        merged({"a": [1]}, {"a": [2]}, {"a": [3]}, {("a", 0): taking({"x": [object()]})})

    assert caught.value.path == 'value["a"][0]["x"][0]'


def test_ours_and_theirs_may_remove() -> None:
    base, removed, changed = {"a": 1, "b": 0}, {"b": 0}, {"a": 2, "b": 0}

    assert merged(base, removed, changed, {"a": "ours"}) == {"b": 0}
    assert merged(base, removed, changed, {"a": "theirs"}) == {"b": 0, "a": 2}


def test_ours_and_theirs_of_large_values_load_nothing() -> None:
    lists = [[f"{n} {number}" for number in range(20_000)] for n in range(3)]
    sides = Sides(*({"a": one} for one in lists))
    root = sides.merge({"a": "theirs"})

    assert root == sides.roots[2]
    assert sides.count < 10


# Equal changes.


def test_two_times_plus_one_is_plus_two() -> None:
    assert merged({"n": 5}, {"n": 6}, {"n": 6}, {"n": "add"}) == {"n": 7}


def test_two_times_one_is_two_where_there_was_nothing() -> None:
    assert merged({}, {"n": 1}, {"n": 1}, {"n": "add"}) == {"n": 2}
    assert merged({}, {"counts": {"n": 1}}, {"counts": {"n": 1}}, {("counts", ...): "add"}) == {
        "counts": {"n": 2}
    }


@pytest.mark.parametrize(
    "rules",
    [{("a", 0, "b", "n"): "add"}, {int: "add"}, {("a", 0, "b", "n"): Merger(taking(2), True)}],
)
@pytest.mark.parametrize("others", [0, 1, 5_000])
def test_equal_changes_deep_inside_meet_their_merger(rules: Any, others: int) -> None:
    def value(number: int) -> Any:
        more = [str(at) for at in range(others)]
        return {"a": [{"b": {"n": number, "more": more}}, *more], "more": dict.fromkeys(more)}

    with small_nodes():
        found = merged(value(0), value(1), value(1), rules)

    assert found == value(2)


def test_equal_changes_under_a_prefix_meet_its_merger() -> None:
    base, changed = {"c": {"d": {"n": 1}}, "x": 1}, {"c": {"d": {"n": 2}}, "x": 2}

    assert merged(base, changed, changed, {("c", ...): "add"}) == {"c": {"d": {"n": 3}}, "x": 2}


def test_equal_changes_of_a_long_dict_read_only_what_changed() -> None:
    base = {f"{number:05}": 0 for number in range(20_000)}
    changed = base | {"00007": 1, "15000": 1}
    sides = Sides(base, changed, changed)
    root = sides.merge({(...,): "add"})

    assert sides.objects.load(root) == base | {"00007": 2, "15000": 2}
    assert sides.count < 60


def test_a_function_does_not_see_equal_changes_unless_it_asks_for_them() -> None:
    assert merged({"n": 1}, {"n": 2}, {"n": 2}, {"n": taking(9)}) == {"n": 2}
    assert merged({"n": 1}, {"n": 2}, {"n": 2}, {"n": Merger(taking(9), on_equal=True)}) == {"n": 9}


def test_equal_changes_that_a_merger_cannot_take_stay_as_they_are() -> None:
    base, changed = {"a": 1, "b": [1]}, {"a": "x", "b": []}

    assert merged(base, changed, changed, {(...,): "add"}) == changed
    assert merged(base, changed, changed, {(...,): "append"}) == changed
    assert merged(["a"], ["a", 1], ["a", 1], {int: "add"}) == ["a", 1]


@given(
    base=st.dictionaries(st.sampled_from("abc"), st.integers(0, 2), max_size=3),
    ours=st.dictionaries(st.sampled_from("abc"), st.integers(0, 2), max_size=3),
    theirs=st.dictionaries(st.sampled_from("abc"), st.integers(0, 2), max_size=3),
)
def test_counters_add_up_whatever_both_sides_did(base: Any, ours: Any, theirs: Any) -> None:
    # Both keep what was there: who removes a counter takes back all that it counts.
    ours, theirs = base | ours, base | theirs
    value = merged({"n": base}, {"n": ours}, {"n": theirs}, {("n", ...): "add"})
    expected = {}
    for key in ours.keys() | theirs.keys():
        changes = [side[key] - base.get(key, 0) for side in (ours, theirs) if key in side]
        expected[key] = base.get(key, 0) + sum(changes)

    assert value["n"] == expected


# The named mergers.


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "expected"),
    [
        (1, 3, 0, 2),
        (10**30, 10**30 + 1, 10**30 + 1, 10**30 + 2),
        (1.5, 2.5, 1.0, 2.0),
        (1, 1.5, 2, 2.5),
        (1j, 2j, 1j + 1, 2j + 1),
        (Decimal("1.10"), Decimal("1.20"), Decimal("1.30"), Decimal("1.40")),
    ],
)
def test_add_adds_both_differences(base: Any, ours: Any, theirs: Any, expected: Any) -> None:
    assert same(merged([base], [ours], [theirs], {(0,): "add"}), [expected])


@pytest.mark.parametrize(
    ("base", "ours", "theirs"),
    [
        (1, True, 5),
        (1, "a", 2),
        ("a", 1, 2),
        (1, Decimal(1), 1.5),
        (0, 10**400, 1.5),
        (Decimal(0), Decimal("Infinity"), Decimal("-Infinity")),
        ([1], [1, 2], [1, 3]),
    ],
)
def test_add_takes_numbers_only(base: Any, ours: Any, theirs: Any) -> None:
    (reason,) = reasons([base], [ours], [theirs], {(0,): "add"})

    assert reason.startswith("add needs numbers")


def test_add_cannot_add_to_what_was_removed() -> None:
    assert reasons({"n": 1}, {}, {"n": 2}, {"n": "add"}) == ["add needs numbers"]


@pytest.mark.parametrize("kind", [list, tuple])
def test_append_keeps_what_both_appended(kind: Any) -> None:
    base, ours, theirs = kind([1]), kind([1, 2]), kind([1, 3, 4])

    assert same(
        merged({"a": base}, {"a": ours}, {"a": theirs}, {"a": "append"}), {"a": kind([1, 2, 3, 4])}
    )
    assert merged({}, {"a": ours}, {"a": ours}, {"a": "append"}) == {"a": kind([1, 2, 1, 2])}


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "reason"),
    [
        ([1, 2], [1, 3], [1, 2, 4], "append needs lists that only grew"),
        ([1, 2], [1], [1, 2, 4], "append needs lists that only grew"),
        ([1], [True, 2], [1, 3], "append needs lists that only grew"),
        ([1], [1, 2], (1, 3), "append needs lists"),
        ("a", "ab", "ac", "append needs lists"),
    ],
)
def test_append_takes_lists_that_grew(base: Any, ours: Any, theirs: Any, reason: str) -> None:
    assert reasons({"a": base}, {"a": ours}, {"a": theirs}, {"a": "append"}) == [reason]


@pytest.mark.parametrize("kind", [list, tuple, set, frozenset])
def test_union_keeps_what_nobody_removed(kind: Any) -> None:
    value = merged([kind("abc")], [kind("abd")], [kind("bce")], {(0,): "union"})

    assert same(value, [kind("bde")])


def test_union_takes_items_of_any_type_and_knows_them_by_their_bytes() -> None:
    value = merged({}, {"a": [{"x": 1}, 1]}, {"a": [True, {"x": 1}]}, {"a": "union"})

    assert same(value, {"a": [{"x": 1}, 1, True]})


def test_union_does_not_lose_a_member_that_python_takes_for_another() -> None:
    (reason,) = reasons([{"x"}], [{"x", 1}], [{"x", True}], {(0,): "union"})

    assert "Python takes for the same" in reason


def test_union_takes_collections_only() -> None:
    assert reasons([1], [2], [3], {(0,): "union"}) == ["union needs sets or lists"]


_TEXT = "".join(f"line {number}\n" for number in range(20))


def test_text_merges_by_line() -> None:
    ours, theirs = (
        _TEXT.replace("line 3\n", "line three\nand more\n"),
        _TEXT.replace("line 17\n", ""),
    )
    value = merged({"t": _TEXT}, {"t": ours}, {"t": theirs}, {"t": "text"})

    assert value["t"] == ours.replace("line 17\n", "")


def test_text_merges_long_texts_with_many_changes() -> None:
    lines = [f"{number}\n" for number in range(5_000)]
    ours = [f"ours {line}" if at % 100 == 3 else line for at, line in enumerate(lines)]
    theirs = [f"theirs {line}" if at % 100 == 7 else line for at, line in enumerate(lines)]
    both = [
        our if our != line else their for line, our, their in zip(lines, ours, theirs, strict=True)
    ]
    base, left, right, expected = ("".join(one) for one in (lines, ours, theirs, both))

    assert merged([base], [left], [right], {(0,): "text"}) == [expected]


def test_text_leaves_one_line_with_two_changes_as_a_conflict() -> None:
    ours, theirs = _TEXT.replace("line 3\n", "3\n"), _TEXT.replace("line 3\n", "III\n")

    assert reasons([_TEXT], [ours], [theirs], {(0,): "text"}) == [
        "both sides changed the same lines"
    ]
    assert reasons({}, {"t": "a"}, {"t": "b"}, {"t": "text"}) == [
        "both sides changed the same lines"
    ]


def test_text_takes_texts_only() -> None:
    assert reasons([b"a"], [b"b"], [b"c"], {(0,): "text"}) == ["text needs texts"]


_HALF = st.lists(st.sampled_from("ab"), max_size=12)


@given(base=_HALF, ours=_HALF, end=_HALF, theirs=_HALF)
def test_text_keeps_what_one_did_above_a_line_and_the_other_below(
    base: list[str], ours: list[str], end: list[str], theirs: list[str]
) -> None:
    def text(above: list[str], below: list[str]) -> list[str]:
        return ["".join(f"{line}\n" for line in [*above, "=", *[line * 2 for line in below]])]

    value = merged(text(base, end), text(ours, end), text(base, theirs), {(0,): "text"})

    assert value == text(ours, theirs)
