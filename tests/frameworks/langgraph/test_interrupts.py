"""Graphs that stop and ask, are answered later, and by others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.types import Command, interrupt

from ropewalk.adapters.langgraph import RopewalkSaver
from tests.frameworks.langgraph.conftest import Addresses
from tests.frameworks.langgraph.engines import ENGINES, QUICK, saver_at
from tests.frameworks.langgraph.graphs import (
    FakeModel,
    asking_graph,
    calling,
    history,
    line_graph,
    thread,
)

everywhere = pytest.mark.parametrize("engine", ENGINES)


def waiting(graph: Any, config: Any) -> dict[str, Any]:
    """What is asked now: the id of each question by its text."""
    return {str(one.value): one.id for one in graph.get_state(config).interrupts}


@everywhere
def test_several_questions_are_answered_by_a_map(saver: RopewalkSaver) -> None:
    graph = asking_graph(saver)
    graph.invoke({"log": []}, thread())
    first = waiting(graph, thread())
    graph.invoke(Command(resume={first["once?"]: "one", first["first?"]: "two"}), thread())
    second = waiting(graph, thread())
    state = graph.invoke(Command(resume={second["{'and': 'second?'}"]: "three"}), thread())

    assert set(first) == {"once?", "first?"} and set(second) == {"{'and': 'second?'}"}
    assert state == {"log": ["once one", "twice two three"], "count": 2}
    assert graph.get_state(thread()).next == ()


def test_questions_are_answered_one_by_one(saver: RopewalkSaver) -> None:
    graph, official = asking_graph(saver), asking_graph(InMemorySaver())
    for each in (graph, official):
        each.invoke({"log": []}, thread())
        for text in ("once?", "first?", "{'and': 'second?'}"):
            asked = waiting(each, thread())
            each.invoke(Command(resume={asked[text]: f"to {text}"}), thread())

    assert history(graph, thread()) == history(official, thread())
    assert graph.get_state(thread()).values["count"] == 2


@pytest.mark.parametrize("engine", [one for one in ENGINES if one != "memory"])
def test_a_question_is_answered_through_another_object(engine: str, address_of: Addresses) -> None:
    address = address_of(engine)
    with saver_at(engine, address) as saver:
        asking_graph(saver).invoke({"log": []}, thread())
    for text in ("first?", "once?", "{'and': 'second?'}"):
        with saver_at(engine, address) as saver:
            graph = asking_graph(saver)
            asked = waiting(graph, thread())
            state = graph.invoke(Command(resume={asked[text]: "yes"}), thread())

    assert state["log"] == ["once yes", "twice yes yes"]


def test_asynchronous_graphs_ask_and_are_answered(saver: RopewalkSaver) -> None:
    graph = asking_graph(saver)

    async def talk() -> Any:
        await graph.ainvoke({"log": []}, thread())
        while asked := (await graph.aget_state(thread())).interrupts:
            answers = {one.id: "yes" for one in asked}
            state = await graph.ainvoke(Command(resume=answers), thread())
        return state

    assert asyncio.run(talk())["log"] == ["once yes", "twice yes yes"]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_question_survives_every_durability(saver: RopewalkSaver, durability: Any) -> None:
    graph = asking_graph(saver)
    graph.invoke({"log": []}, thread(), durability=durability)
    asked = waiting(graph, thread())
    graph.invoke(
        Command(resume=dict.fromkeys(asked.values(), "yes")), thread(), durability=durability
    )
    rest = waiting(graph, thread())
    state = graph.invoke(
        Command(resume=dict.fromkeys(rest.values(), "yes")), thread(), durability=durability
    )

    assert len(asked) == 2 and len(rest) == 1
    assert state["log"] == ["once yes", "twice yes yes"]


def test_a_graph_stops_before_and_after_nodes(saver: RopewalkSaver) -> None:
    graph = line_graph(saver, 4, interrupt_before=["n1"], interrupt_after=["n2"])
    stops = []
    given: Any = {"log": ["start"]}
    while True:
        state = graph.invoke(given, thread())
        stops.append(graph.get_state(thread()).next)
        if not stops[-1]:
            break
        given = None

    assert stops == [("n1",), ("n3",), ()]
    assert state["log"] == ["start", "n0", "n1", "n2", "n3"]


def test_an_answer_is_kept_when_the_node_fails_after_it(saver: RopewalkSaver) -> None:
    failing = [True]

    @task
    def careful() -> str:
        if failing:
            raise ValueError("not yet")
        return "done"

    @entrypoint(checkpointer=saver)
    def work(given: str) -> str:
        answer = interrupt("may I?")
        return f"{given} {answer} {careful().result()}"

    work.invoke("job", thread())
    with pytest.raises(ValueError, match="not yet"):
        work.invoke(Command(resume="yes"), thread())
    failing.clear()

    assert work.invoke(None, thread()) == "job yes done"


@pytest.mark.parametrize("engine", [*QUICK, "postgres"])
def test_an_agent_asks_inside_a_tool(saver: RopewalkSaver) -> None:
    def book(place: str) -> str:
        """Book a trip."""
        return f"booked {place}" if interrupt(f"book {place}?") else "left it"

    says = [calling("book", 1, place="Oslo"), AIMessage("Done.", id="ai-2")]
    agent = create_agent(FakeModel(messages=iter(says)), [book], checkpointer=saver)
    agent.invoke({"messages": [HumanMessage("go", id="h")]}, thread())
    asked = waiting(agent, thread())
    state = agent.invoke(Command(resume=True), thread())

    assert list(asked) == ["book Oslo?"]
    assert [one.content for one in state["messages"]] == ["go", "", "booked Oslo", "Done."]


def test_a_state_is_changed_while_a_question_waits(saver: RopewalkSaver) -> None:
    graph = line_graph(saver, 2, interrupt_before=["n1"])
    graph.invoke({"log": ["start"]}, thread())
    graph.update_state(thread(), {"log": ["by hand"]})
    state = graph.invoke(None, thread())

    assert state["log"] == ["start", "n0", "by hand", "n1"]
