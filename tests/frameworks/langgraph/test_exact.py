"""What a graph's state holds comes back as what it was, or it is refused, or the page says so."""

from __future__ import annotations

import collections
import dataclasses
import enum
import ipaddress
import re
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import ormsgpack
import pydantic
import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

from ropewalk.adapters.langgraph import CoherentStore, RopewalkSaver, RopewalkStore
from ropewalk.adapters.langgraph.classes import UnknownTypeWarning
from ropewalk.errors import NotStorable, UndeclaredClass
from tests.frameworks.langgraph.checkpoints import checkpoint_of, config_of, metadata_of
from tests.frameworks.langgraph.graphs import thread


class Text(str):
    __slots__ = ()


class Number(int):
    pass


class Items(list[Any]):
    pass


class Table(dict[Any, Any]):
    pass


class Members(set[Any]):
    pass


class Kind(enum.Enum):
    GOOD = "good"


class Rank(enum.IntEnum):
    FIRST = 1


class Place(NamedTuple):
    name: str
    where: Any = None


@dataclasses.dataclass
class Ticket:
    title: str
    about: Any = None
    seen: list[Any] = dataclasses.field(default_factory=list)


class Plan(pydantic.BaseModel):
    title: str
    steps: list[Any] = []


EXACT: list[Any] = [
    collections.Counter("abca"),
    collections.OrderedDict([("b", 1), ("a", [2])]),
    collections.defaultdict(list, {"a": [1]}),
    collections.deque([1, [2]], maxlen=3),
    range(1, 9, 3),
    Fraction(1, 3),
    re.compile("a+", re.IGNORECASE),
    ipaddress.ip_network("10.0.0.0/8"),
    {1: (2, {3}), Kind.GOOD: frozenset({4})},
]
CLASSES: list[Any] = [
    Kind.GOOD,
    Rank.FIRST,
    Place("a", [1]),
    Ticket("t", Place("b"), [Kind.GOOD]),
    Plan(title="p", steps=[Ticket("x"), collections.Counter("aa")]),
    HumanMessage("hi", id="1"),
    AIMessage("yes", additional_kwargs={"counts": collections.Counter("abc"), "by": Rank.FIRST}),
]
HABITS: list[tuple[Any, Any]] = [
    (Text("t"), "t"),
    (Number(3), 3),
    (Items([1]), [1]),
    (Table(a=1), {"a": 1}),
    (Members({1}), {1}),
    (ValueError("x"), "ValueError('x')"),
    (StopIteration(), "StopIteration()"),
]
"""What LangGraph's own savers make something else of, and what."""
UNSEEN = [ormsgpack.Fragment(b"\x91\x2a"), ormsgpack.Ext(2, b"\x91\x01")]
"""What ormsgpack would write without a word."""
PLACES: dict[str, Callable[[Any], Any]] = {
    "itself": lambda one: one,
    "in a list": lambda one: [1, one],
    "in a dict": lambda one: {"a": {"b": one}},
    "in a tuple": lambda one: (one,),
    "in a dataclass": lambda one: Ticket("t", one, [one]),
    "in a model": lambda one: Plan(title="p", steps=[one]),
    "in a message": lambda one: AIMessage("x", additional_kwargs={"one": one}),
    "in a list of messages": lambda one: [
        HumanMessage("x"),
        AIMessage("x", response_metadata={"one": [one]}),
    ],
    "in a deque": lambda one: collections.deque([one]),
    "in a dict of numbers": lambda one: {1: one},
}
somewhere = pytest.mark.parametrize("place", PLACES)
strictly = pytest.mark.parametrize("strict", [False, True], ids=["lenient", "strict"])


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same, with their types at every depth."""
    return type(one) is type(other) and described(one) == described(other)


def described(one: Any) -> Any:
    """A value with the types of all that it holds."""
    cls = type(one)
    if isinstance(one, pydantic.BaseModel):
        held: Any = {**one.__dict__, "__set__": one.model_fields_set}
        return cls, described(held)
    if dataclasses.is_dataclass(one):
        return cls, described(vars(one))
    if isinstance(one, dict):
        factory = getattr(one, "default_factory", None)
        return cls, factory, [(described(key), described(value)) for key, value in one.items()]
    if isinstance(one, list | tuple | collections.deque):
        return cls, getattr(one, "maxlen", None), [described(item) for item in one]
    if isinstance(one, set | frozenset):
        return cls, sorted(map(repr, map(described, one)))
    return cls, repr(one)


class Held(TypedDict):
    value: Any


def keep(saver: RopewalkSaver, value: Any, thread_id: str = "t") -> Any:
    """What a graph finds in its state after a node wrote a value there, and did so again."""

    def write(state: Held) -> dict[str, Any]:
        return {"value": value}

    builder = StateGraph(Held)
    builder.add_node("write", write)
    builder.add_edge(START, "write")
    graph = builder.compile(checkpointer=saver)
    for _ in range(2):
        graph.invoke({"value": None}, thread(thread_id), durability="sync")
    return graph.get_state(thread(thread_id)).values["value"]


@somewhere
@strictly
def test_a_state_comes_back_exactly(place: str, strict: bool) -> None:
    wanted = [PLACES[place](one) for one in [*EXACT, *CLASSES]]
    with RopewalkSaver(strict=strict) as saver, warnings.catch_warnings():
        warnings.simplefilter("error")
        found = keep(saver, wanted)
        with RopewalkSaver(saver.store, strict=strict) as other:
            anew = other.get_tuple(thread())

        assert anew is not None
        for one, again, was in zip(
            found, anew.checkpoint["channel_values"]["value"], wanted, strict=True
        ):
            assert same(one, was) and same(again, was)
        for number, was in enumerate(wanted):
            assert same(keep(saver, was, f"alone {number}"), was)


@somewhere
def test_what_langgraph_makes_plain_is_made_plain(place: str) -> None:
    with RopewalkSaver() as saver:
        for number, (value, plain) in enumerate(HABITS):
            assert same(keep(saver, PLACES[place](value), f"t{number}"), PLACES[place](plain))


@somewhere
def test_strict_refuses_what_would_not_come_back(place: str) -> None:
    with RopewalkSaver(strict=True) as saver:
        for number, (value, _) in enumerate(HABITS):
            name = type(value).__name__
            with pytest.raises(NotStorable, match=rf"{name}.*strict.*node 'write'"):
                keep(saver, PLACES[place](value), f"t{number}")

        assert saver.store.check(read_data=True).ok


@somewhere
@strictly
def test_what_ormsgpack_would_write_unseen_is_refused(place: str, strict: bool) -> None:
    with RopewalkSaver(strict=strict) as saver:
        for number, value in enumerate(UNSEEN):
            with pytest.raises(NotStorable, match=f"{type(value).__name__}.*node 'write'"):
                keep(saver, PLACES[place](value), f"t{number}")

        assert saver.store.check(read_data=True).ok


@pytest.mark.parametrize("make", [RopewalkStore, CoherentStore])
def test_stores_refuse_it_too(make: Any) -> None:
    with make() as store:
        for place in PLACES.values():
            for value in [*UNSEEN, *(one for one, _ in HABITS)]:
                with pytest.raises(NotStorable):
                    store.put(("a",), "k", {"value": place(value)})

        assert store.get(("a",), "k") is None


@pytest.mark.parametrize("make", [RopewalkStore, CoherentStore])
def test_stores_give_back_exactly(make: Any) -> None:
    with make() as store:
        for place in PLACES.values():
            wanted = [place(one) for one in [*EXACT, *CLASSES]]
            store.put(("a",), "k", {"value": wanted})
            found = store.get(("a",), "k").value["value"]

            for one, was in zip(found, wanted, strict=True):
                assert same(one, was)


# What LangGraph writes for itself.


@strictly
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_the_error_of_a_task_is_kept_as_text(strict: bool, durability: Any) -> None:
    failing = [True]

    def fail(state: Held) -> dict[str, Any]:
        if failing:
            raise ValueError("no luck")
        return {"value": "done"}

    builder = StateGraph(Held)
    builder.add_node("fail", fail)
    builder.add_edge(START, "fail")
    with RopewalkSaver(strict=strict) as saver:
        graph = builder.compile(checkpointer=saver)
        with pytest.raises(ValueError, match="no luck"):
            graph.invoke({"value": None}, thread(), durability=durability)
        (task,) = graph.get_state(thread()).tasks
        failing.clear()
        done = graph.invoke(None, thread(), durability=durability)

        assert "no luck" in str(task.error)
        assert done == {"value": "done"}


@strictly
def test_metadata_holds_what_a_config_says(strict: bool) -> None:
    with RopewalkSaver(strict=strict) as saver:
        config = config_of("t")
        made = checkpoint_of({"a": 1})
        about = {**metadata_of(0), "by": ("a", 1)}
        saver.put(config, made, about, {})
        found = saver.get_tuple(config)

        assert found is not None and found.metadata["by"] == ["a", 1]


# Another process.


READER = """
    import sys, warnings
    from ropewalk.adapters.langgraph import RopewalkSaver
    if {loads}:
        import tests.frameworks.langgraph.test_exact
    warnings.simplefilter("always")
    with RopewalkSaver({store!r}, strict={strict}, classes={classes!r}) as saver:
        try:
            found = saver.get_tuple({{"configurable": {{"thread_id": "t"}}}})
            print(repr(found.checkpoint["channel_values"]["value"]))
        except Exception as error:
            print(type(error).__name__, error)
"""


def read(store: Path, *, loads: bool, strict: bool = False, classes: str = "plain") -> str:
    """What another process says that it reads."""
    text = READER.format(loads=loads, store=str(store), strict=strict, classes=classes)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)], capture_output=True, text=True, check=True
    )
    return done.stdout + done.stderr


def test_another_process_needs_the_modules_of_classes_and_is_told_which(tmp_path: Path) -> None:
    value = [Ticket("t", Place("b"), [Kind.GOOD]), collections.Counter("aa")]
    with RopewalkSaver(tmp_path / "store") as saver:
        keep(saver, value)
    module = "tests.frameworks.langgraph.test_exact"

    assert repr(value) in read(tmp_path / "store", loads=True)
    assert repr(value) in read(tmp_path / "store", loads=True, strict=True)
    lenient, strict = (read(tmp_path / "store", loads=False, strict=one) for one in (False, True))
    assert UnknownTypeWarning.__name__ in lenient and module in lenient and "Counter" in lenient
    assert strict.startswith(UndeclaredClass.__name__) and f"import {module}" in strict
    declared = read(tmp_path / "store", loads=True, strict=True, classes="declared")
    assert declared.startswith(UndeclaredClass.__name__) and "declare" in declared
