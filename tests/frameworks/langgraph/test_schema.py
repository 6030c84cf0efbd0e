"""The classes that a graph names, and the graph that calls a saver."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import enum
import operator
from collections.abc import AsyncIterator
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    Required,
    Union,
)

import pydantic
import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint
from langgraph.graph import START, StateGraph
from langgraph.types import Send
from typing_extensions import TypedDict

from ropewalk.adapters.langgraph.classes import calling_graph, classes_of, classes_of_callers


class Color(enum.Enum):
    RED = 1


class Pair(NamedTuple):
    x: int


@dataclasses.dataclass
class Inner:
    color: Optional[Color]  # noqa: UP045 - the older spelling is what is tested
    pairs: list[Pair]


class Model(pydantic.BaseModel):
    inner: dict[str, Inner]


class InUnion(pydantic.BaseModel):
    z: int = 1


class InTuple(pydantic.BaseModel):
    z: int = 1


class InNested(pydantic.BaseModel):
    z: int = 1


class InInput(pydantic.BaseModel):
    z: int = 1


class InSubgraph(pydantic.BaseModel):
    z: int = 1


class InTask(pydantic.BaseModel):
    z: int = 1


Alias = NewType("Alias", InTuple)


class Nested(TypedDict):
    one: InNested


class State(TypedDict):
    models: Annotated[list[Model], operator.add]
    other: NotRequired[Union[InUnion, None]]  # noqa: UP007 - as above
    pair: Required[tuple[Alias, ...]]
    nested: Nested | Literal["a"]


class Input(TypedDict):
    given: InInput


class SubState(TypedDict):
    models: list[Model]
    inside: InSubgraph


EXPECTED = {Color, Pair, Inner, Model, InUnion, InTuple, InNested, InInput, InSubgraph}


class AskingSaver(InMemorySaver):
    """Notes who calls it."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[set[type]] = []

    def _ask(self) -> None:
        assert calling_graph(self) is not None
        self.found.append(classes_of_callers(self))

    def get_tuple(self, config: Any) -> Any:
        self._ask()
        return super().get_tuple(config)

    async def aget_tuple(self, config: Any) -> Any:
        self._ask()
        return super().get_tuple(config)

    def list(self, *args: Any, **more: Any) -> Any:
        self._ask()
        return super().list(*args, **more)

    async def alist(self, *args: Any, **more: Any) -> AsyncIterator[Any]:
        self._ask()
        for one in super().list(*args, **more):
            yield one


def build(saver: Any = None) -> Any:
    below = StateGraph(SubState)
    below.add_node("inner", lambda state: {})
    below.add_edge(START, "inner")
    builder = StateGraph(State)
    builder.add_node("first", lambda state: {"models": []})
    builder.add_node("sent", lambda given: {}, input_schema=Input)
    builder.add_node("below", below.compile(checkpointer=True))
    builder.add_edge(START, "first")
    builder.add_conditional_edges("first", lambda state: [Send("sent", {})], ["sent"])
    builder.add_edge("first", "below")
    return builder.compile(checkpointer=saver)


CONFIG: Any = {"configurable": {"thread_id": "1"}}


def test_classes_are_found_in_all_schemas_and_in_graphs_below() -> None:
    graph = build()

    assert classes_of(graph) >= EXPECTED
    assert classes_of(graph.builder) >= EXPECTED
    assert classes_of(graph) is classes_of(graph)


def test_classes_of_a_task_are_found() -> None:
    def work(given: Any) -> Any:
        return []

    work.__annotations__ = {"given": InTask, "return": list[Model]}

    assert classes_of(entrypoint(checkpointer=InMemorySaver())(work)) >= {InTask, Model, Inner}


def test_what_is_no_graph_has_no_classes() -> None:
    assert classes_of(object()) == frozenset()


@pytest.mark.parametrize("action", ["invoke", "get_state", "get_state_history", "update_state"])
def test_a_graph_that_calls_a_saver_is_found(action: str) -> None:
    saver = AskingSaver()
    graph = build(saver)
    graph.invoke({"models": []}, CONFIG)
    if action != "invoke":
        saver.found.clear()
    if action == "get_state":
        graph.get_state(CONFIG, subgraphs=True)
    if action == "get_state_history":
        list(graph.get_state_history(CONFIG))
    if action == "update_state":
        graph.update_state(CONFIG, {"models": []})

    assert saver.found
    assert any(found >= EXPECTED for found in saver.found)
    assert all(InSubgraph in found for found in saver.found)


def test_a_graph_that_calls_a_saver_from_a_loop_is_found() -> None:
    saver = AskingSaver()
    graph = build(saver)

    async def run() -> None:
        await graph.ainvoke({"models": []}, CONFIG)
        await graph.aget_state(CONFIG)
        _ = [one async for one in graph.aget_state_history(CONFIG)]

    asyncio.run(run())

    assert any(found >= EXPECTED for found in saver.found)
    assert all(InSubgraph in found for found in saver.found)


def test_a_graph_of_another_saver_is_not_meant() -> None:
    other = InMemorySaver()

    class Curious(InMemorySaver):
        asked = False

        def get_tuple(self, config: Any) -> Any:
            self.asked = True
            assert calling_graph(other) is None
            assert calling_graph(self) is not None
            return super().get_tuple(config)

    saver = Curious()
    build(saver).invoke({"models": []}, CONFIG)

    assert saver.asked
    assert calling_graph(saver) is None


def test_a_copy_of_a_saver_is_the_same_saver() -> None:
    saver = AskingSaver()
    original = copy.copy(saver)
    found = []

    def ask(config: Any) -> Any:
        found.append(calling_graph(original))
        return None

    saver.get_tuple = ask  # type: ignore[method-assign]
    build(saver).invoke({"models": []}, CONFIG)

    assert found[0] is not None
