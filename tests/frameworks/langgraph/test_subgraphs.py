"""Graphs inside graphs, with and without memory of their own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from ropewalk.adapters.langgraph import RopewalkSaver
from tests.frameworks.langgraph.engines import ENGINES
from tests.frameworks.langgraph.graphs import Log, history, line_graph, thread, told

everywhere = pytest.mark.parametrize("engine", ENGINES)


def inner_graph(*, asks: bool = True, saver: Any = None) -> Any:
    """Notes its own name, and then asks."""

    def note(state: Log) -> dict[str, Any]:
        return {"log": ["noted"]}

    def ask(state: Log) -> dict[str, Any]:
        return {"log": [f"answer {interrupt('inner?')}" if asks else "did not ask"]}

    builder = StateGraph(Log)
    builder.add_node("note", note)
    builder.add_node("ask", ask)
    builder.add_edge(START, "note")
    builder.add_edge("note", "ask")
    builder.add_edge("ask", END)
    return builder.compile(checkpointer=saver)


def around(inner: Any, saver: Any, name: str = "inner") -> Any:
    """A graph of one node that is another graph."""
    builder = StateGraph(Log)
    builder.add_node(name, inner)
    builder.add_edge(START, name)
    builder.add_edge(name, END)
    return builder.compile(checkpointer=saver)


@everywhere
def test_a_question_from_the_third_level_is_answered(saver: RopewalkSaver) -> None:
    graph = around(around(inner_graph(), None, "middle"), saver, "outer")
    graph.invoke({"log": ["start"]}, thread())
    state = graph.get_state(thread(), subgraphs=True)
    middle = state.tasks[0].state
    inner = middle.tasks[0].state
    ended = graph.invoke(Command(resume="yes"), thread())

    assert state.next == ("outer",) and middle.next == ("middle",) and inner.next == ("ask",)
    assert inner.values["log"] == ["start", "noted"]
    assert inner.config["configurable"]["checkpoint_ns"].count("|") == 1
    assert ended["log"] == ["start", "start", "start", "noted", "answer yes"]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_levels_have_the_history_that_langgraph_gives_them(
    saver: RopewalkSaver, durability: Any
) -> None:
    def run(given: Any) -> tuple[Any, list[tuple[str, Any]]]:
        graph = around(around(inner_graph(), None, "middle"), given, "outer")
        graph.invoke({"log": ["start"]}, thread(), durability=durability)
        graph.invoke(Command(resume="yes"), thread(), durability=durability)
        levels = sorted(
            (_without_ids(one.config["configurable"]["checkpoint_ns"]), one.metadata["step"])
            for one in given.list(thread())
        )
        return history(graph, thread()), levels

    assert run(saver) == run(InMemorySaver())


def test_a_graph_with_memory_of_its_own_goes_on_where_it_was(saver: RopewalkSaver) -> None:
    inner = inner_graph(asks=False, saver=True)

    def call(state: Log) -> dict[str, Any]:
        return {"count": len(inner.invoke({"log": ["called"]})["log"])}

    builder = StateGraph(Log)
    builder.add_node("call", call)
    builder.add_edge(START, "call")
    graph = builder.compile(checkpointer=saver)
    counts = [graph.invoke({"log": []}, thread())["count"] for _ in range(3)]

    assert counts == [3, 6, 9]


def test_a_graph_without_memory_of_its_own_begins_anew(saver: RopewalkSaver) -> None:
    inner = inner_graph(asks=False)

    def call(state: Log) -> dict[str, Any]:
        return {"count": len(inner.invoke({"log": ["called"]})["log"])}

    builder = StateGraph(Log)
    builder.add_node("call", call)
    builder.add_edge(START, "call")
    graph = builder.compile(checkpointer=saver)
    counts = [graph.invoke({"log": []}, thread())["count"] for _ in range(3)]

    assert counts == [3, 3, 3]


def test_a_graph_with_another_checkpointer_is_kept_there(saver: RopewalkSaver) -> None:
    with RopewalkSaver() as other:
        inner = inner_graph(asks=False, saver=other)

        def call(state: Log) -> dict[str, Any]:
            inner.invoke({"log": ["called"]}, thread("inside"))
            return {"log": ["outer"]}

        builder = StateGraph(Log)
        builder.add_node("call", call)
        builder.add_edge(START, "call")
        builder.compile(checkpointer=saver).invoke({"log": []}, thread())

        assert inner.get_state(thread("inside")).values["log"][0] == "called"
        assert saver.get_tuple(thread("inside")) is None
        assert other.get_tuple(thread()) is None


def test_the_state_of_a_graph_inside_is_changed(saver: RopewalkSaver) -> None:
    graph = around(inner_graph(), saver)
    graph.invoke({"log": ["start"]}, thread())
    inside = graph.get_state(thread(), subgraphs=True).tasks[0].state.config
    graph.update_state(inside, {"log": ["by hand"]})
    ended = graph.invoke(Command(resume="yes"), thread())

    assert ended["log"] == ["start", "start", "noted", "by hand", "answer yes"]


def test_an_asynchronous_graph_inside_another(saver: RopewalkSaver) -> None:
    graph = around(around(inner_graph(), None), saver)

    async def talk() -> tuple[Any, Any]:
        await graph.ainvoke({"log": ["start"]}, thread())
        state = await graph.aget_state(thread(), subgraphs=True)
        return state, await graph.ainvoke(Command(resume="yes"), thread())

    state, ended = asyncio.run(talk())

    assert told(state.tasks[0].state.tasks[0].state)["interrupts"] == ["inner?"]
    assert ended["log"][-1] == "answer yes"


def test_two_graphs_inside_beside_each_other_are_told_apart(saver: RopewalkSaver) -> None:
    builder = StateGraph(Log)
    for name in ("left", "right"):
        builder.add_node(name, inner_graph())
        builder.add_edge(START, name)
    graph = builder.compile(checkpointer=saver)
    graph.invoke({"log": []}, thread())
    asked = graph.get_state(thread(), subgraphs=True)
    answers = {one.id: task.name for task in asked.tasks for one in task.interrupts}
    ended = graph.invoke(Command(resume=answers), thread())

    assert sorted(answers.values()) == ["left", "right"]
    assert sorted(one for one in ended["log"] if one.startswith("answer")) == [
        "answer left",
        "answer right",
    ]


def test_a_thread_with_graphs_inside_is_deleted_as_a_whole(saver: RopewalkSaver) -> None:
    graph = around(around(inner_graph(), None), saver)
    graph.invoke({"log": ["start"]}, thread())
    before = len(list(saver.list(thread())))
    saver.delete_thread("t")

    assert before > 3 and list(saver.list(thread())) == []
    assert graph.get_state(thread()).values == {}


def test_a_line_inside_a_line_has_all_steps(saver: RopewalkSaver) -> None:
    graph = around(line_graph(None, 4), saver)
    graph.invoke({"log": ["start"]}, thread())
    spaces = {one.config["configurable"]["checkpoint_ns"] for one in saver.list(thread())}

    assert len(spaces) == 2
    assert {_without_ids(one) for one in spaces} == {"", "inner"}


def _without_ids(namespace: str) -> str:
    return "|".join(part.partition(":")[0] for part in namespace.split("|"))
