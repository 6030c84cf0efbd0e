"""Real graphs: chats, agents, parallel branches, functions, and every durability."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task

from ropewalk.adapters.langgraph import RopewalkSaver
from tests.frameworks.langgraph.conftest import Addresses
from tests.frameworks.langgraph.engines import ENGINES, QUICK, saver_at
from tests.frameworks.langgraph.graphs import (
    FakeModel,
    calling,
    chat_graph,
    fan_graph,
    history,
    line_graph,
    thread,
)

everywhere = pytest.mark.parametrize("engine", ENGINES)


def said(turn: int) -> dict[str, Any]:
    return {"messages": [HumanMessage(f"turn {turn}", id=f"human-{turn}")]}


@everywhere
def test_a_chat_remembers_its_turns(saver: RopewalkSaver) -> None:
    graph = chat_graph(saver)
    for turn in range(4):
        state = graph.invoke(said(turn), thread())

    assert [one.content for one in state["messages"]] == [
        "turn 0", "I have seen 1", "turn 1", "I have seen 3",
        "turn 2", "I have seen 5", "turn 3", "I have seen 7",
    ]  # fmt: skip
    assert graph.get_state(thread()).values == state
    assert all(type(one) in (HumanMessage, AIMessage) for one in state["messages"])
    assert len(list(graph.get_state_history(thread()))) == 12


@everywhere
def test_an_asynchronous_chat_remembers_its_turns(saver: RopewalkSaver) -> None:
    graph = chat_graph(saver)

    async def talk() -> tuple[Any, Any, int]:
        for turn in range(4):
            state = await graph.ainvoke(said(turn), thread())
        listed = [one async for one in graph.aget_state_history(thread())]
        return state, (await graph.aget_state(thread())).values, len(listed)

    state, kept, count = asyncio.run(talk())

    assert len(state["messages"]) == 8 and kept == state and count == 12


@pytest.mark.parametrize("engine", [one for one in ENGINES if one != "memory"])
def test_a_chat_goes_on_where_another_object_left_it(engine: str, address_of: Addresses) -> None:
    address = address_of(engine)
    for turn in range(3):
        with saver_at(engine, address) as saver:
            state = chat_graph(saver).invoke(said(turn), thread())

    assert [one.id for one in state["messages"]] == [
        "human-0", "ai-1", "human-1", "ai-3", "human-2", "ai-5",
    ]  # fmt: skip


def test_messages_are_replaced_and_removed(saver: RopewalkSaver) -> None:
    graph = chat_graph(saver)
    graph.invoke(said(0), thread())
    graph.invoke({"messages": [HumanMessage("changed", id="human-0")]}, thread())
    graph.update_state(thread(), {"messages": [RemoveMessage("ai-1")]})

    found = [one.content for one in graph.get_state(thread()).values["messages"]]
    assert found == ["changed", "I have seen 2"]


@everywhere
def test_an_agent_calls_tools_and_remembers_them(saver: RopewalkSaver) -> None:
    def weather(place: str) -> str:
        """Tell the weather."""
        return f"sun in {place}"

    says = [
        calling("weather", 1, place="Rome"), AIMessage("It is sunny.", id="ai-2"),
        calling("weather", 3, place="Oslo"), AIMessage("It is not.", id="ai-4"),
    ]  # fmt: skip
    agent = create_agent(FakeModel(messages=iter(says)), [weather], checkpointer=saver)
    for turn in (1, 2):
        messages = [HumanMessage("and now?", id=f"human-{turn}")]
        state = agent.invoke({"messages": messages}, thread())
    kept = agent.get_state(thread()).values["messages"]

    assert kept == state["messages"]
    assert [one.content for one in kept if isinstance(one, ToolMessage)] == [
        "sun in Rome",
        "sun in Oslo",
    ]
    assert [call["args"] for one in kept for call in getattr(one, "tool_calls", [])] == [
        {"place": "Rome"},
        {"place": "Oslo"},
    ]


@everywhere
def test_branches_beside_each_other_are_gathered(saver: RopewalkSaver) -> None:
    graph = fan_graph(saver)
    state = graph.invoke({"items": [3, 1, 2]}, thread())

    assert state["found"] == ["item 3", "item 1", "item 2", "all 3"]
    assert history(graph, thread()) == history(_beside(fan_graph, {"items": [3, 1, 2]}), thread())


def test_a_failed_branch_runs_again_and_the_finished_ones_do_not(saver: RopewalkSaver) -> None:
    failing = [2]
    graph = fan_graph(saver, failing)
    with pytest.raises(ValueError, match="2 fails"):
        graph.invoke({"items": [1, 2, 3]}, thread())
    waiting = graph.get_state(thread())
    errors = [one.error for one in waiting.tasks]
    failing.clear()
    state = graph.invoke(None, thread())

    assert [bool(one) for one in errors] == [False, True, False]
    assert state["found"] == ["item 1", "item 2", "item 3", "all 3"]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("engine", [*QUICK, "postgres"])
def test_every_durability_ends_in_the_same_state(saver: RopewalkSaver, durability: str) -> None:
    graph = line_graph(saver, 5)
    official = line_graph(InMemorySaver(), 5)
    for turn in range(3):
        given = {"log": [f"turn {turn}"]}
        graph.invoke(given, thread(), durability=durability)
        official.invoke(given, thread(), durability=durability)

    assert history(graph, thread()) == history(official, thread())
    assert len(history(graph, thread())) == (3 if durability == "exit" else 21)


@pytest.mark.parametrize("durability", ["sync", "async"])
def test_a_step_is_stored_while_the_graph_goes_on(saver: RopewalkSaver, durability: str) -> None:
    graph = line_graph(saver, 4)
    seen = []
    for _ in graph.stream({"log": []}, thread(), durability=durability, stream_mode="updates"):
        found = saver.get_tuple(thread())
        seen.append(-2 if found is None else found.metadata["step"])

    assert seen == sorted(seen)
    assert durability == "async" or seen == [1, 2, 3, 4]
    assert graph.get_state(thread()).metadata["step"] == 4


@everywhere
def test_functions_keep_what_their_tasks_returned(saver: RopewalkSaver) -> None:
    ran = []

    @task
    def square(number: int) -> int:
        ran.append(number)
        return number * number

    @entrypoint(checkpointer=saver)
    def total(numbers: list[int], *, previous: int | None = None) -> Any:
        squares = [one.result() for one in [square(number) for number in numbers]]
        if len(ran) == len(numbers) == 3:
            raise ValueError("not yet")
        return entrypoint.final(value=sum(squares) + (previous or 0), save=sum(squares))

    with pytest.raises(ValueError, match="not yet"):
        total.invoke([1, 2, 3], thread())
    ran.append(0)
    first = total.invoke(None, thread())
    again = total.invoke([4], thread())

    assert first == 14 and again == 16 + 14
    assert sorted(ran) == [0, 1, 2, 3, 4]


def test_a_stream_of_checkpoints_names_what_is_stored(saver: RopewalkSaver) -> None:
    graph = line_graph(saver)
    events = list(graph.stream({"log": []}, thread(), stream_mode="checkpoints"))
    stored = list(saver.list(thread()))

    assert [one["config"]["configurable"]["checkpoint_id"] for one in events][::-1] == [
        one.checkpoint["id"] for one in stored
    ]


def test_ten_threads_know_nothing_of_each_other(saver: RopewalkSaver) -> None:
    graph = line_graph(saver)
    for number in range(10):
        graph.invoke({"log": [f"thread {number}"]}, thread(number))

    for number in range(10):
        assert graph.get_state(thread(number)).values["log"][0] == f"thread {number}"
        assert graph.get_state(thread(number)).values["count"] == 3


def _beside(build: Any, given: Any) -> Any:
    """The same graph after the same input, with LangGraph's own checkpointer."""
    graph = build(InMemorySaver())
    graph.invoke(given, thread())
    return graph
