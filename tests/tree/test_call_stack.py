"""From a deep call stack, a deep value is read and written, or refused with our errors."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from ropewalk.errors import FormatError, NotStorable, RopewalkError
from ropewalk.tree import Map, diff, get, insert, load, merge, put, remove
from tests.tree.support import Objects, stored

_LARGE = 90
"""So many large parts inside one another can be stored."""


_FILLING = [f"{at:<50}" for at in range(100)]


def _nested(last: Any, levels: int = _LARGE) -> Any:
    """Large lists and dicts inside one another; each is too large for its parent."""
    value: Any = [last, *_FILLING]
    for level in range(levels):
        value = {"in": value} | dict.fromkeys(_FILLING, 1) if level % 2 else [value, *_FILLING]
    return value


_PATH = tuple("in" if level % 2 else 0 for level in reversed(range(_LARGE)))


def _from(depth: int, call: Callable[[], Any]) -> Any:
    return _from(depth - 1, call) if depth else call()


def _room(margin: int) -> int:
    frame, depth = sys._getframe(), 0
    while frame.f_back is not None:
        frame, depth = frame.f_back, depth + 1
    return sys.getrecursionlimit() - depth - margin


def _stored() -> tuple[Any, Any, Any, Objects]:
    base, objects = stored(_nested([1, 2, 3]))
    ours, more = stored(_nested([1, 2, 3, 4]))
    theirs, others = stored(_nested([0, 1, 2, 3]))
    objects.update(more)
    objects.update(others)
    return base, ours, theirs, objects


def _calls() -> dict[str, Callable[[], Any]]:
    base, ours, theirs, objects = _stored()
    read = objects.read
    held = Map.empty()
    objects.update({made.id: made for made in held.objects})
    edited = Map(held.root, read).edit({"a": _nested(1)})
    objects.update({made.id: made for made in edited.objects})
    small = put(base, (), 1, read)
    objects.update({made.id: made for made in small.objects})
    changes = list(diff(base, small.root, read))
    return {
        "load": lambda: load(base, read),
        "get": lambda: get(base, (), read),
        "get beneath": lambda: get(base, (*_PATH, 0), read),
        "put": lambda: put(base, (*_PATH, 0), 5, read),
        "put deep": lambda: put(base, (), _nested(1), read),
        "remove": lambda: remove(base, (*_PATH, 0), read),
        "insert": lambda: insert(base, (*_PATH, 0), 5, read),
        "diff": lambda: [repr(one) for one in diff(base, ours, read)],
        "change": lambda: changes[0].old,
        "merge": lambda: merge(base, ours, theirs, read),
        "map": lambda: Map(edited.root, read)["a"],
        "contains": lambda: "a" in Map(edited.root, read),
        "map edit": lambda: Map(edited.root, read).edit({"b": _nested(2)}),
    }


Calls: TypeAlias = dict[str, Callable[[], Any]]


@pytest.fixture(scope="module")
def calls() -> Calls:
    return _calls()


@pytest.mark.parametrize(
    "name",
    "load,get,get beneath,put,put deep,remove,insert,diff,change,merge,map,contains,map edit".split(
        ","
    ),
)
@pytest.mark.parametrize("margin", [25, 30, 40, 60, 80, 120, 200, 400])
def test_a_deep_value_from_a_deep_call_stack_works_or_is_refused(
    calls: Calls, name: str, margin: int
) -> None:
    call = calls[name]
    with contextlib.suppress(RopewalkError):
        found = _from(_room(margin), call)

        assert name != "contains" or found is True


@pytest.mark.parametrize("name", ["load", "get", "diff", "change", "map"])
def test_reading_names_the_call_stack(calls: Calls, name: str) -> None:
    with pytest.raises(FormatError, match="the call stack has no room left"):
        _from(_room(60), calls[name])


@pytest.mark.parametrize("name", ["put", "remove", "insert", "merge"])
def test_writing_names_the_call_stack(calls: Calls, name: str) -> None:
    with pytest.raises(NotStorable, match="the call stack has no room left"):
        _from(_room(60), calls[name])


def test_what_was_refused_at_the_end_of_the_call_stack_works_above_it(calls: Calls) -> None:
    for call in calls.values():
        with contextlib.suppress(RopewalkError):
            _from(_room(60), call)
        call()
