"""Every kind of value that a state holds is followed when it is changed in place."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec
import numpy
import pydantic
import pytest

from ropewalk.errors import Corrupt, NotAllowed, NotStorable, UndeclaredClass
from ropewalk.state import Versioned
from ropewalk.store import Store
from tests.state.conftest import StateOpener
from tests.state.large import messages, sentence

KEY = b"k" * 32


@dataclass
class Task:
    title: str
    steps: list[str] = field(default_factory=list)


class Person(pydantic.BaseModel):
    name: str
    tags: list[str] = []
    inner: Person | None = None


class Row(msgspec.Struct):
    cells: list[int]


class Plain:
    """A class that nobody declared: only a pickle can say it."""

    def __init__(self) -> None:
        self.items: list[Any] = []


TYPES = [Task, Person, Row]


def change_array(array: Any) -> None:
    array[1] = 99


def rename(person: Any) -> None:
    person.name = "b"
    person.tags.append("x")
    person.inner.tags.append("y")


CHANGES: list[tuple[Any, Callable[[Any], Any]]] = [
    ([1, (2, [3])], lambda value: value[1][1].append(4)),
    ({"a": {1: {(2, 3): []}}}, lambda value: value["a"][1][(2, 3)].append(4)),
    ({1: "int", 1.5: "float", None: "none", b"b": "bytes"}, lambda value: value.pop(None)),
    ({1, 2, 3}, lambda value: value.add(4)),
    ([{1, "a"}, frozenset({2})], lambda value: value[0].discard(1)),
    ([math.nan, None, True], lambda value: value.__setitem__(1, math.nan)),
    (bytearray(b"abc"), lambda value: value.extend(b"d")),
    (bytearray(sentence(1, 40_000).encode()), lambda value: value.__setitem__(20_000, 0)),
    ([bytearray(b"abc")] * 1 + messages(100), lambda value: value[0].append(1)),
    (Task("a"), lambda value: value.steps.append("one")),
    (Task("a", [sentence(n) for n in range(300)]), lambda value: value.steps.pop(150)),
    ([Task("a")], lambda value: setattr(value[0], "title", "b")),
    (Person(name="a", inner=Person(name="i")), rename),
    (Row([1, 2]), lambda value: value.cells.append(3)),
    (numpy.arange(10), change_array),
    (numpy.arange(100_000.0), change_array),
    ({"arrays": [numpy.zeros((3, 3))]}, lambda value: value["arrays"][0].fill(1)),
    (Plain(), lambda value: value.items.append(1)),
    ([Plain(), messages(100)], lambda value: value[0].items.append(sentence(1, 20_000))),
    (messages(300), lambda value: value[150]["content"].__len__() and value[150].clear()),
    ({str(n): sentence(n) for n in range(500)}, lambda value: value.update({"250": "x"})),
    ({"text": sentence(1, 100_000)}, lambda value: value.update(text=sentence(1, 100_000) + "!")),
    ({n: [sentence(n)] for n in range(300)}, lambda value: value[200].append(1)),
    ({sentence(n) for n in range(300)}, lambda value: value.remove(sentence(7))),
    ((messages(100), messages(100)), lambda value: value[1].reverse()),
]


def shown(value: Any) -> Any:
    """A form that is equal exactly where the values are."""
    if isinstance(value, Plain):
        return repr(vars(value))
    if isinstance(value, list | tuple):
        return [type(value), *map(shown, value)]
    if isinstance(value, dict):
        return [(repr(key), shown(one)) for key, one in value.items()]
    if isinstance(value, set):
        return sorted(map(repr, value))
    if isinstance(value, numpy.ndarray):
        return (str(value.dtype), value.tolist())
    return repr(value)


@pytest.mark.parametrize(
    ("make", "change"),
    CHANGES,
    ids=[f"{n}-{type(one[0]).__name__}" for n, one in enumerate(CHANGES)],
)
@pytest.mark.parametrize("read", ["held", "read again", "read by others"])
def test_a_change_in_place_is_found(
    open_state: StateOpener, make: Any, change: Callable[[Any], Any], read: str
) -> None:
    value = copy.deepcopy(make)
    state = open_state(types=TYPES, pickle_key=KEY)
    state["x"] = value
    state["beside"] = 1
    first = state.commit() or ""
    before = shown(value)
    if read != "held":
        state = open_state(types=TYPES, pickle_key=KEY)
        value = state["x"]
        assert shown(value) == before
    if read == "read by others":
        assert not state.dirty
        assert state.commit() == first
    change(value)
    assert shown(value) != before
    assert state.dirty
    second = state.commit() or ""

    assert not state.dirty
    again = open_state(types=TYPES, pickle_key=KEY)
    assert shown(again["x"]) == shown(value)
    assert shown(again.checkout(first)["x"]) == before
    assert shown(again.checkout(second)["x"]) == shown(value)


# Classes and pickles.


def test_a_class_that_nobody_declared_is_refused_when_it_is_set(state: Versioned) -> None:
    with pytest.raises(NotStorable, match="Plain"):
        state["x"] = Plain()

    assert "x" not in state


def test_a_class_that_the_reader_did_not_declare_is_a_loud_error(open_state: StateOpener) -> None:
    writer = open_state(types=TYPES)
    writer["x"] = Task("a")
    writer["y"] = 1
    writer.commit()
    reader = open_state(classes="declared")

    assert reader["y"] == 1
    for _ in range(2):
        with pytest.raises(UndeclaredClass, match="Task"):
            reader["x"]
    assert "x" in reader
    reader["z"] = 2
    reader.commit()
    assert open_state(types=TYPES)["x"] == Task("a")


class Trap:
    """Runs code when it is unpickled."""

    sprung: ClassVar[list[str]] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return spring, ()


def spring() -> Trap:
    """What runs; it gives a trap again, so that whoever wrote one may also load it."""
    Trap.sprung.append("it ran")
    return Trap()


@pytest.mark.parametrize("reader_key", [None, b"x" * 32], ids=["no key", "another key"])
def test_a_pickle_that_was_not_signed_with_our_key_never_runs(
    open_state: StateOpener, reader_key: bytes | None
) -> None:
    Trap.sprung.clear()
    hostile = open_state(pickle_key=b"h" * 32)
    hostile["x"] = [Trap()]
    hostile["many"] = [*messages(100), Trap()]
    hostile["fine"] = 1
    hash = hostile.commit() or ""
    Trap.sprung.clear()
    reader = open_state(pickle_key=reader_key)

    assert len(reader) == 3
    assert reader["fine"] == 1
    for key in ("x", "many"):
        with pytest.raises((NotAllowed, Corrupt)):
            reader[key]
        with pytest.raises((NotAllowed, Corrupt)):
            reader.checkout(hash)[key]
        with pytest.raises((NotAllowed, Corrupt)):
            reader.get(key, "a default")
    assert len(reader.history()) == 1
    reader["mine"] = 2
    reader.commit()
    assert Trap.sprung == []


def test_opening_reading_and_merging_a_state_with_hostile_pickles_runs_nothing(
    open_state: StateOpener,
) -> None:
    Trap.sprung.clear()
    reader = open_state(pickle_key=KEY)
    reader["mine"] = [1]
    reader.commit()
    hostile = open_state(pickle_key=b"h" * 32)
    hostile["x"] = Trap()
    hostile.commit()
    Trap.sprung.clear()
    reader["mine"].append(2)
    reader.commit()
    reader.refresh()
    open_state(pickle_key=KEY).history()

    assert Trap.sprung == []
    assert reader["mine"] == [1, 2]


def test_a_store_may_hold_any_bytes_and_none_of_them_is_a_pickle_to_us(store: Store) -> None:
    Trap.sprung.clear()
    state = Versioned(store)
    planted = pickle.dumps(Trap())
    state["x"] = planted
    state.commit()

    assert Versioned(store)["x"] == planted
    assert Trap.sprung == []
