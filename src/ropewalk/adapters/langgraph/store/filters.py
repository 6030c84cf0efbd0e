"""Filters on values, with one meaning on every engine, validated before anything is read.

A filter is a dict. Each entry is a condition on a field, or one of `$and`, `$or`, `$not` on whole
filters; all entries must hold. A condition is a dict of operators, a dict of further fields, or a
value that the field must be equal to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, TypeAlias

from ropewalk.errors import InvalidInput

Test: TypeAlias = Callable[[Any], bool]
"""A predicate on a value or `MISSING`."""

_DEEPEST: Final = 64
_LONGEST: Final = 1024
_ORDERED: Final = (str, bytes, datetime, date, time, timedelta, Decimal)
_CONNECTED: Final = ("$and", "$not", "$or")


class Missing:
    """The value at a path that does not exist."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = Missing()


def compiled(given: Any) -> Test:
    """Compile a filter to a predicate; raises `InvalidInput` for an invalid one."""
    if given is None:
        return lambda value: True
    return _filter(given, 0)


def _filter(given: Any, depth: int) -> Test:
    _expect_dict(given, "a filter", depth)
    tests: list[Test] = []
    for name, wanted in given.items():
        if not isinstance(name, str):
            raise InvalidInput(f"a filter names fields by text, not by {name!r:.80}")
        if name.startswith("$"):
            tests.append(_connected(name, wanted, depth, _filter))
        else:
            tests.append(_at(name, _condition(wanted, depth + 1)))
    return _all(tests)


def _condition(wanted: Any, depth: int) -> Test:
    """The condition on one field."""
    if not isinstance(wanted, Mapping):
        return _equals(wanted)
    _expect_dict(wanted, "a condition", depth)
    operators = [isinstance(name, str) and name.startswith("$") for name in wanted]
    if not any(operators):
        inside = _filter(wanted, depth)
        return lambda value: isinstance(value, Mapping) and inside(value)
    if not all(operators):
        raise InvalidInput(
            f"a condition has operators or fields, not both: {list(wanted)!r:.80}. Join them "
            "with $and."
        )
    return _all([_operator(name, operand, depth) for name, operand in wanted.items()])


def _operator(name: str, operand: Any, depth: int) -> Test:
    if name in _CONNECTED:
        return _connected(name, operand, depth, _condition)
    make = _OPERATORS.get(name)
    if make is None:
        raise _unknown(name)
    return make(operand)


def _connected(name: str, operand: Any, depth: int, make: Callable[[Any, int], Test]) -> Test:
    """`$and`, `$or` and `$not`, of filters or of conditions."""
    if name == "$not":
        test = make(operand, depth + 1)
        return lambda value: not test(value)
    if name not in _CONNECTED:
        raise _unknown(name)
    if not isinstance(operand, list | tuple):
        raise InvalidInput(f"{name} takes a list, not {operand!r:.80}")
    tests = [make(one, depth + 1) for one in operand]
    if name == "$and":
        return _all(tests)
    return lambda value: any(test(value) for test in tests)


def _all(tests: list[Test]) -> Test:
    if len(tests) == 1:
        return tests[0]
    return lambda value: all(test(value) for test in tests)


def _expect_dict(given: Any, what: str, depth: int) -> None:
    if not isinstance(given, Mapping):
        raise InvalidInput(f"{what} is a dict, not {given!r:.80}")
    if depth > _DEEPEST:
        raise InvalidInput(f"a filter is at most {_DEEPEST} levels deep")


def _unknown(name: str) -> InvalidInput:
    known = ", ".join(sorted([*_OPERATORS, *_CONNECTED]))
    return InvalidInput(f"there is no operator {name!r:.80}; there are {known}")


# Operators.


def are_equal(one: Any, other: Any) -> bool:
    """Whether two values are equal to a filter.

    Numbers are compared by value, and True is not a number. Equal lists and tuples are equal.
    Values of other types are equal only to those of their own type.
    """
    if _is_number(one) or _is_number(other):
        return _is_number(one) and _is_number(other) and bool(one == other)
    if isinstance(one, list | tuple):
        return (
            isinstance(other, list | tuple)
            and len(one) == len(other)
            and all(map(are_equal, one, other))
        )
    if isinstance(one, Mapping):
        return (
            isinstance(other, Mapping)
            and len(one) == len(other)
            and all(key in other and are_equal(one[key], other[key]) for key in one)
        )
    return type(one) is type(other) and bool(one == other)


def _equals(operand: Any) -> Test:
    # A missing field compares like None; $exists tells them apart.
    return lambda value: are_equal(None if value is MISSING else value, operand)


def _not(make: Callable[[Any], Test]) -> Callable[[Any], Test]:
    def negated(operand: Any) -> Test:
        test = make(operand)
        return lambda value: not test(value)

    return negated


def _among(operand: Any) -> Test:
    if not isinstance(operand, list | tuple | set | frozenset):
        raise InvalidInput(f"$in and $nin take a list, not {operand!r:.80}")
    tests = [_equals(one) for one in operand]
    return lambda value: any(test(value) for test in tests)


def _exists(operand: Any) -> Test:
    if not isinstance(operand, bool):
        raise InvalidInput(f"$exists takes True or False, not {operand!r:.80}")
    return lambda value: (value is not MISSING) is operand


def _compares(is_so: Callable[[Any, Any], bool]) -> Callable[[Any], Test]:
    def make(operand: Any) -> Test:
        return lambda value: _are_comparable(value, operand) and bool(is_so(value, operand))

    return make


def _are_comparable(one: Any, other: Any) -> bool:
    if _is_number(one):
        return _is_number(other)
    if type(one) is not type(other) or not isinstance(one, _ORDERED):
        return False
    if isinstance(one, datetime | time):
        return (one.utcoffset() is None) == (other.utcoffset() is None)
    return not (isinstance(one, Decimal) and (one.is_nan() or other.is_nan()))


def _is_number(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, float) and not math.isnan(value))


_OPERATORS: Final[dict[str, Callable[[Any], Test]]] = {
    "$eq": _equals,
    "$ne": _not(_equals),
    "$gt": _compares(lambda one, other: one > other),
    "$gte": _compares(lambda one, other: one >= other),
    "$lt": _compares(lambda one, other: one < other),
    "$lte": _compares(lambda one, other: one <= other),
    "$in": _among,
    "$nin": _not(_among),
    "$exists": _exists,
}


# Paths.


def _at(path: str, test: Test) -> Test:
    """A predicate on the value at a path."""
    if len(path) > _LONGEST:
        raise InvalidInput(f"a path takes at most {_LONGEST} characters, not {len(path)}")
    if "[*]" in path:
        raise InvalidInput(
            f"a filter looks at one place, and {path!r:.80} names several: write an index in the "
            "place of *"
        )
    return lambda value: test(found_at(value, path))


def found_at(value: Any, path: str) -> Any:
    """The value at a path; `MISSING` if the path does not exist.

    `a.b` is the field `b` of the field `a`; `a.0` and `a[0]` are the first element of `a`, `a.-1`
    the last. Keys that contain dots or brackets take precedence, the longest first.
    """
    if isinstance(value, Mapping):
        if path in value:
            return value[path]
        for first, rest in _cuts(path):
            if first in value:
                found = found_at(value[first], rest)
                if found is not MISSING:
                    return found
        return MISSING
    if isinstance(value, list | tuple):
        return _in_list(value, path)
    return MISSING


def _in_list(value: list[Any] | tuple[Any, ...], path: str) -> Any:
    first, rest = next(iter(reversed(list(_cuts(path)))), (path, ""))
    number = _index(first)
    if number is None or not -len(value) <= number < len(value):
        return MISSING
    return found_at(value[number], rest) if rest else value[number]


def _cuts(path: str) -> Iterator[tuple[str, str]]:
    """The ways to take a first step, longest first."""
    for at in range(len(path) - 1, 0, -1):
        if path[at] == "." and at + 1 < len(path):
            yield path[:at], path[at + 1 :]
        elif path[at] == "[":
            yield path[:at], path[at:]


def _index(step: str) -> int | None:
    if step.startswith("[") and step.endswith("]"):
        step = step[1:-1]
    digits = step.removeprefix("-")
    return int(step) if digits.isascii() and digits.isdigit() and len(digits) < 10 else None
