"""One saver for many: threads, event loops, processes and copies."""

from __future__ import annotations

import asyncio
import copy
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from ropewalk.adapters.langgraph import RopewalkSaver
from tests.conftest import SOAK
from tests.frameworks.langgraph.checkpoints import config_of, put, written
from tests.frameworks.langgraph.conftest import Addresses
from tests.frameworks.langgraph.engines import ENGINES, saver_at
from tests.frameworks.langgraph.graphs import chat_graph, delta_graph, line_graph, thread
from tests.frameworks.langgraph.worker import ROOT, start

everywhere = pytest.mark.parametrize("engine", ENGINES)
TURNS = 30 if SOAK else 4
DURABLE = [one for one in ENGINES if one not in ("memory", "cached")]


@everywhere
def test_many_threads_share_one_saver(saver: RopewalkSaver) -> None:
    graph = line_graph(saver)

    def talk(number: int) -> list[str]:
        for turn in range(TURNS):
            graph.invoke({"log": [f"{number} {turn}"]}, thread(number))
        log: list[str] = graph.get_state(thread(number)).values["log"]
        return log

    with ThreadPoolExecutor(8) as pool:
        logs = list(pool.map(talk, range(8)))

    for number, log in enumerate(logs):
        assert log[::4] == [f"{number} {turn}" for turn in range(TURNS)]
        assert len(log) == 4 * TURNS


@everywhere
def test_many_event_loops_share_one_saver(saver: RopewalkSaver) -> None:
    graph = chat_graph(saver)

    async def talk(number: int) -> int:
        for turn in range(TURNS):
            said = HumanMessage("hello", id=f"{number} {turn}")
            await graph.ainvoke({"messages": [said]}, thread(number))
        state = await graph.aget_state(thread(number))
        return len(state.values["messages"])

    async def talk_twice(number: int) -> list[int]:
        return [*await asyncio.gather(talk(number), talk(number + 100))]

    with ThreadPoolExecutor(4) as pool:
        counts = list(pool.map(lambda number: asyncio.run(talk_twice(number)), range(4)))

    assert counts == [[2 * TURNS, 2 * TURNS]] * 4


def test_a_saver_outlives_its_event_loop(saver: RopewalkSaver) -> None:
    graph = chat_graph(saver)
    for turn in range(4):
        said = HumanMessage("hello", id=f"h{turn}")
        state = asyncio.run(graph.ainvoke({"messages": [said]}, thread()))

    assert len(state["messages"]) == 8


def test_synchronous_methods_work_inside_an_event_loop(saver: RopewalkSaver) -> None:
    async def inside() -> Any:
        graph = line_graph(saver)
        await graph.ainvoke({"log": ["a"]}, thread())
        graph.invoke({"log": ["b"]}, thread())
        return graph.get_state(thread()).values["log"]

    assert asyncio.run(inside()) == ["a", "n0", "n1", "n2", "b", "n0", "n1", "n2"]


def test_writes_of_many_threads_to_one_checkpoint_are_all_there(saver: RopewalkSaver) -> None:
    config = put(saver, config_of(), {"a": 1})

    def write(number: int) -> None:
        saver.put_writes(
            config, [("a", number), ("b", number)], f"task-{number:03}", f"p{number % 3}"
        )

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(60)))

    found = written(saver, config)
    assert sorted(value for _, channel, value in found if channel == "a") == list(range(60))
    assert len(found) == 120


@pytest.mark.parametrize("engine", DURABLE)
def test_four_processes_talk_in_one_thread(engine: str, address_of: Addresses) -> None:
    address = address_of(engine)
    count = TURNS // 2
    processes = [start("turns", engine, address, name, count) for name in "abcd"]
    ended = [process.communicate(timeout=600)[1].decode() for process in processes]
    with saver_at(engine, address) as saver:
        graph = chat_graph(saver)
        shared = [one.id for one in graph.get_state(thread("shared")).values["messages"]]
        own = [len(graph.get_state(thread(f"of {name}")).values["messages"]) for name in "abcd"]

    assert [process.returncode for process in processes] == [0, 0, 0, 0], ended
    assert {one for one in shared if not one.startswith("ai-")} == {
        f"{name}-{turn}" for name in "abcd" for turn in range(count)
    }
    assert own == [2 * count] * 4


@everywhere
def test_another_object_sees_what_was_stored_at_once(engine: str, address_of: Addresses) -> None:
    if engine == "memory":
        with RopewalkSaver() as one:
            _take_turns(one, RopewalkSaver(one.store))
        return
    address = address_of(engine)
    with saver_at(engine, address) as one, saver_at(engine, address) as other:
        _take_turns(one, other)


def _take_turns(one: RopewalkSaver, other: RopewalkSaver) -> None:
    graphs = [chat_graph(one), chat_graph(other)]
    for turn in range(6):
        said = HumanMessage("hello", id=f"h{turn}")
        state = graphs[turn % 2].invoke({"messages": [said]}, thread())

    assert len(state["messages"]) == 12
    assert graphs[0].get_state(thread()).values == graphs[1].get_state(thread()).values == state


def test_a_copy_is_the_same_saver(saver: RopewalkSaver) -> None:
    twin = copy.copy(saver)
    graph, other = delta_graph(saver), delta_graph(twin)
    for _ in range(3):
        graph.invoke({"log": ["one"]}, thread())
        other.invoke({"log": ["two"]}, thread())

    log = graph.get_state(thread()).values["log"]
    assert log == other.get_state(thread()).values["log"] and len(log) == 18
    assert twin.store is saver.store


STRICT = '''
import sys, warnings
from dataclasses import dataclass, field
from typing import Annotated
from pydantic import BaseModel
from langgraph.graph import StateGraph, START
from ropewalk.adapters.langgraph import RopewalkSaver

warnings.simplefilter("error")

class Place(BaseModel):
    name: str

@dataclass
class Trip:
    places: list[Place] = field(default_factory=list)
    days: int = 1

@dataclass
class State:
    trip: Trip
    old: dict[str, Place] = field(default_factory=dict)

def go(state: State):
    return {"trip": Trip([Place(name="Oslo")], 2), "old": {"a": Place(name="Rome")}}

builder = StateGraph(State)
builder.add_node("go", go)
builder.add_edge(START, "go")
config = {"configurable": {"thread_id": "t"}}
with RopewalkSaver(sys.argv[1]) as saver:
    graph = builder.compile(checkpointer=saver)
    if sys.argv[2] == "write":
        graph.invoke({"trip": Trip()}, config)
    values = graph.get_state(config).values
    assert values == go(None), values
    assert type(values["trip"]) is Trip and type(values["old"]["a"]) is Place
    assert graph.checkpointer.store is saver.store
print("fine")
'''  # fmt: skip


@pytest.mark.parametrize("strict", ["true", "false"])
def test_the_classes_of_the_schema_come_back_under_strict_msgpack(
    strict: str, address_of: Addresses
) -> None:
    address = address_of("sqlite")
    for mode in ("write", "read"):
        done = subprocess.run(
            [sys.executable, "-c", STRICT, address, mode],
            env={**os.environ, "LANGGRAPH_STRICT_MSGPACK": strict},
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip

        assert done.stdout.strip() == "fine", done.stderr
