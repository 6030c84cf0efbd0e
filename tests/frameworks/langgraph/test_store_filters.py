"""Filters, against a second, plain reading of what they mean."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.adapters.langgraph.store.filters import MISSING, are_equal, compiled, found_at
from ropewalk.errors import InvalidInput

NAMES = ["a", "b", "c"]
ORDERS = {
    "$gt": lambda one, other: one > other,
    "$gte": lambda one, other: one >= other,
    "$lt": lambda one, other: one < other,
    "$lte": lambda one, other: one <= other,
}

atoms = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([2**53, 2**53 + 1, -(2**64)]),
    st.floats(allow_nan=True),
    st.sampled_from([0.0, -0.0, 1.0, 2.5, float(2**53)]),
    st.sampled_from(["", "1", "10", "9", "a"]),
    st.sampled_from([date(2026, 1, 1), datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC)]),
    st.sampled_from([Decimal(1), Decimal("NaN")]),
)
values: st.SearchStrategy[Any] = st.recursive(
    atoms,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner),
    max_leaves=6,
)
items = st.dictionaries(st.sampled_from(NAMES), values)


def conditions(depth: int) -> st.SearchStrategy[Any]:
    simple = st.one_of(
        st.fixed_dictionaries({"$eq": values}),
        st.fixed_dictionaries({"$ne": values}),
        *(st.fixed_dictionaries({name: atoms}) for name in ORDERS),
        st.fixed_dictionaries({"$gt": atoms, "$lte": atoms}),
        st.fixed_dictionaries({"$in": st.lists(values, max_size=3)}),
        st.fixed_dictionaries({"$nin": st.lists(values, max_size=3)}),
        st.fixed_dictionaries({"$exists": st.booleans()}),
        values.filter(lambda value: not isinstance(value, dict)),
    )
    if not depth:
        return simple
    inner = conditions(depth - 1)
    return st.one_of(
        simple,
        st.fixed_dictionaries({"$not": inner}),
        st.fixed_dictionaries({"$and": st.lists(inner, max_size=2)}),
        st.fixed_dictionaries({"$or": st.lists(inner, max_size=2)}),
        st.dictionaries(st.sampled_from(NAMES), inner),
    )


def filters(depth: int) -> st.SearchStrategy[Any]:
    fields = st.dictionaries(st.sampled_from(NAMES), conditions(2), max_size=2)
    if not depth:
        return fields
    inner = filters(depth - 1)
    return st.one_of(
        fields,
        st.fixed_dictionaries({"$not": inner}),
        st.fixed_dictionaries({"$and": st.lists(inner, max_size=2)}),
        st.fixed_dictionaries({"$or": st.lists(inner, max_size=2), "a": conditions(1)}),
    )


class Absent:
    """What the model takes for a field that is not there."""


def family(value: Any) -> str:
    """Values of one family can be compared."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "nothing" if isinstance(value, float) and math.isnan(value) else "number"
    if isinstance(value, datetime):
        return "datetime" if value.tzinfo else "local"
    if isinstance(value, Decimal):
        return "nothing" if value.is_nan() else "Decimal"
    return type(value).__name__


def same(one: Any, other: Any) -> bool:
    if family(one) != family(other) or family(one) == "nothing":
        return False
    if isinstance(one, list):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(one == other)


def holds(wanted: Any, value: Any) -> bool:
    """The model: whether a condition holds for a value."""
    known = None if value is Absent else value
    if not isinstance(wanted, dict):
        return same(known, wanted)
    if not any(name.startswith("$") for name in wanted):
        return isinstance(value, dict) and passes(wanted, value)
    for name, operand in wanted.items():
        if name in ORDERS:
            comparable = family(value) == family(operand)
            ordered = family(value) in ("number", "str", "date", "datetime", "local", "Decimal")
            good = comparable and ordered and ORDERS[name](value, operand)
        elif name in ("$eq", "$ne"):
            good = same(known, operand) == (name == "$eq")
        elif name in ("$in", "$nin"):
            good = any(same(known, one) for one in operand) == (name == "$in")
        elif name == "$exists":
            good = (value is not Absent) == operand
        elif name == "$not":
            good = not holds(operand, value)
        else:
            good = (all if name == "$and" else any)([holds(one, value) for one in operand])
        if not good:
            return False
    return True


def passes(wanted: dict[str, Any], item: dict[str, Any]) -> bool:
    """The model: whether a filter holds for an item."""
    for name, condition in wanted.items():
        if name == "$not":
            good = not passes(condition, item)
        elif name in ("$and", "$or"):
            good = (all if name == "$and" else any)([passes(one, item) for one in condition])
        else:
            good = holds(condition, item.get(name, Absent))
        if not good:
            return False
    return True


@given(filters(2), items)
def test_a_filter_means_what_the_model_says(wanted: dict[str, Any], item: dict[str, Any]) -> None:
    assert compiled(wanted)(item) == passes(wanted, item)


@given(values, values)
def test_equality_goes_both_ways(one: Any, other: Any) -> None:
    assert are_equal(one, other) == are_equal(other, one)


@given(filters(1), items)
def test_a_filter_and_its_opposite_part_all_items(
    wanted: dict[str, Any], item: dict[str, Any]
) -> None:
    assert compiled({"$not": wanted})(item) != compiled(wanted)(item)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("a", {"b": [1, {"c": 2}], "b.d": 3}),
        ("a.b", [1, {"c": 2}]),
        ("a.b.0", 1),
        ("a.b[0]", 1),
        ("a.b.-2", 1),
        ("a.b[-1].c", 2),
        ("a.b.1.c", 2),
        ("a.b.d", 3),
        ("x.y", 4),
        ("x.y.z", 5),
        ("x", {"y": {"z": 5}}),
        ("a.b.2", MISSING),
        ("a.b.-3", MISSING),
        ("a.b.c", MISSING),
        ("a.b.", MISSING),
        (".a", MISSING),
        ("a..b", MISSING),
        ("", MISSING),
        ("a.b.1.c.d", MISSING),
        ("p[0][1]", 7),
        ("p.0.1", 7),
        ("p[0", MISSING),
        ("q[0]", 8),
        ("k.0", 9),
    ],
)
def test_a_path_leads_to_one_place(path: str, found: Any) -> None:
    value = {
        "a": {"b": [1, {"c": 2}], "b.d": 3},
        "x.y": 4,
        "x": {"y": {"z": 5}},
        "p": [[6, 7]],
        "q[0]": 8,
        "q": [10],
        "k": {"0": 9},
    }

    assert found_at(value, path) == found


@pytest.mark.parametrize(
    "wanted",
    [
        [],
        "text",
        {1: 2},
        {"a": {"$gt": 1, "b": 2}},
        {"a": {1: 2}},
        {"a[*]": 1},
        {"a" * 2000: 1},
        {"$and": "ab"},
        {"$not": [1]},
        {"$": 1},
        {"a": {"$in": "text"}},
        {"a": {"$exists": None}},
    ],
    ids=lambda wanted: repr(wanted)[:30],
)
def test_what_a_filter_cannot_mean_is_refused(wanted: Any) -> None:
    with pytest.raises(InvalidInput):
        compiled(wanted)


def test_a_filter_that_is_too_deep_is_refused_and_not_crashed_on() -> None:
    deep: Any = {"a": 1}
    for _ in range(5000):
        deep = {"$not": deep}

    with pytest.raises(InvalidInput, match="deep"):
        compiled(deep)


def test_times_of_day_and_spans_are_compared_with_their_like() -> None:
    later = compiled({"span": {"$gt": timedelta(minutes=1)}})

    assert later({"span": timedelta(hours=1)}) and not later({"span": 3600})
