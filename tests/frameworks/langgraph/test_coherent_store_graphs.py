"""`CoherentStore` inside real graphs: agents that share artifacts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.config import get_store
from langgraph.func import entrypoint, task
from langgraph.graph import START, StateGraph
from langgraph.prebuilt import InjectedStore
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore
from langgraph.types import Send

from ropewalk.adapters.langgraph import CoherentStore, RopewalkSaver
from ropewalk.adapters.langgraph.coherent.naming import running_agent


@pytest.fixture(params=["memory", "sqlite"])
def place(request: pytest.FixtureRequest, memory_folder: Path) -> Any:
    return None if request.param == "memory" else memory_folder / "store"


class Work(TypedDict, total=False):
    draft: str
    verdict: str


def plan(state: Work, runtime: Runtime) -> Work:
    assert runtime.store is not None
    runtime.store.put(("planner", "shared"), "plan", {"steps": ["look", "leap"]})
    return {}


def review(state: Work, runtime: Runtime) -> Work:
    assert runtime.store is not None
    found: Any = runtime.store.get(("reviewer", "shared"), "plan")
    runtime.store.put(
        ("reviewer", "shared"), "plan", {**found.value, "verdict": "good"}, if_version=found.version
    )
    return {"verdict": "good"}


def report(state: Work, runtime: Runtime) -> Work:
    assert runtime.store is not None
    (found,) = runtime.store.search(("reporter", "shared"))
    return {"draft": f"{found.value['verdict']}: {', '.join(found.value['steps'])}"}


def reviewed() -> StateGraph[Any, Any, Any, Any]:
    builder = StateGraph(Work)
    for node in (plan, review, report):
        builder.add_node(node.__name__, node)
    builder.add_edge(START, "plan")
    builder.add_edge("plan", "review")
    builder.add_edge("review", "report")
    return builder


@pytest.mark.parametrize("strategy", ["lazy", "eager", "lease", "access_count", "broadcast"])
def test_agents_of_a_graph_share_an_artifact(strategy: str, place: Any) -> None:
    with CoherentStore(strategy, store=place) as store:
        graph = reviewed().compile(store=store, checkpointer=RopewalkSaver())
        given = graph.invoke({}, {"configurable": {"thread_id": "t"}})
        found: Any = store.get(("anybody", "shared"), "plan")

    assert given["draft"] == "good: look, leap"
    assert found.version == 2


def test_agents_of_an_asynchronous_graph_share_an_artifact(place: Any) -> None:
    async def aplan(state: Work, runtime: Runtime) -> Work:
        assert runtime.store is not None
        await runtime.store.aput(("planner", "shared"), "plan", {"steps": ["look"]})
        return {}

    async def areview(state: Work, runtime: Runtime) -> Work:
        assert runtime.store is not None
        found: Any = await runtime.store.aget(("reviewer", "shared"), "plan")
        return {"draft": found.value["steps"][0]}

    async def run() -> Any:
        builder = StateGraph(Work)
        builder.add_node("plan", aplan)
        builder.add_node("review", areview)
        builder.add_edge(START, "plan")
        builder.add_edge("plan", "review")
        async with CoherentStore(store=place) as store:
            return await builder.compile(store=store).ainvoke({})

    assert asyncio.run(run())["draft"] == "look"


class Counting(TypedDict, total=False):
    names: list[str]


def test_agents_that_run_at_once_lose_no_update(place: Any) -> None:
    def count(state: Any) -> Counting:
        store = get_store()
        assert isinstance(store, CoherentStore)
        for _ in range(5):
            store.edit(
                (state["name"], "shared"), "n", lambda value: {"n": value["n"] + 1},
                default={"n": 0},
            )  # fmt: skip
        return {}

    builder = StateGraph(Counting)
    builder.add_node("count", count)
    builder.add_conditional_edges(
        START, lambda state: [Send("count", {"name": name}) for name in state["names"]]
    )
    with CoherentStore(store=place) as store:
        builder.compile(store=store).invoke({"names": [f"agent-{n}" for n in range(6)]})
        found: Any = store.get(("anybody", "shared"), "n")

    assert (found.value, found.version) == ({"n": 30}, 30)


# Who runs, with identity="config".


def test_the_node_is_the_agent_unless_the_config_names_one() -> None:
    seen: list[str] = []

    def look(state: Work) -> Work:
        seen.append(running_agent())
        return {}

    builder = StateGraph(Work)
    builder.add_node("planner", look)
    builder.add_edge(START, "planner")
    inner = builder.compile()
    outer = StateGraph(Work)
    outer.add_node("team", inner)
    outer.add_node("lead", look)
    outer.add_edge(START, "team")
    outer.add_edge("team", "lead")
    graph = outer.compile()
    graph.invoke({})
    graph.invoke({}, {"configurable": {"agent": "ann"}})
    graph.invoke({}, {"configurable": {"agent_name": "bob"}})

    assert seen == ["planner", "lead", "ann", "ann", "bob", "bob"]
    assert running_agent() == "nobody"


def test_agents_by_config_keep_namespaces_and_tenants_apart(place: Any) -> None:
    events: list[Any] = []

    def remember(state: Work, runtime: Runtime) -> Work:
        assert runtime.store is not None
        runtime.store.put(("alice", "memories"), "city", {"name": "Rome"})
        return {}

    async def recall(state: Work, runtime: Runtime) -> Work:
        assert runtime.store is not None
        found: Any = await runtime.store.aget(("alice", "memories"), "city")
        other = await runtime.store.aget(("bob", "memories"), "city")
        return {"draft": found.value["name"], "verdict": repr(other)}

    builder = StateGraph(Work)
    builder.add_node("writer", remember)
    builder.add_node("reader", recall)
    builder.add_edge(START, "writer")
    builder.add_edge("writer", "reader")
    with CoherentStore(store=place, identity="config", on_metric=events.append) as store:
        given = asyncio.run(builder.compile(store=store).ainvoke({}))

    assert given == {"draft": "Rome", "verdict": "None"}
    assert [(one.operation, one.namespace, one.agent_name) for one in events] == [
        ("put", ("alice", "memories"), "writer"),
        ("get", ("alice", "memories"), "reader"),
    ]


class Scripted(GenericFakeChatModel):
    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self


def scripted(*said: AIMessage) -> Scripted:
    return Scripted(messages=iter(said))


def calling(name: str, **arguments: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": "1"}])


@tool
def note(text: str, store: Annotated[BaseStore, InjectedStore()]) -> str:
    """Write the shared note."""
    assert isinstance(store, CoherentStore)
    store.edit(("notes",), "note", lambda value: {"lines": [*value["lines"], text]},
               default={"lines": []})  # fmt: skip
    return "noted"


@tool
def notes(store: Annotated[BaseStore, InjectedStore()]) -> str:
    """Read the shared note."""
    found: Any = store.get(("notes",), "note")
    return "; ".join(found.value["lines"])


def test_two_agents_with_tools_share_a_note(place: Any) -> None:
    events: list[Any] = []
    with CoherentStore(store=place, identity="config", on_metric=events.append) as store:
        for name in ("researcher", "editor"):
            agent = create_agent(
                scripted(calling("note", text=f"by {name}"), calling("notes"), AIMessage("done")),
                [note, notes],
                store=store,
                name=name,
            )
            given = agent.invoke({"messages": [("user", "go")]})

    assert given["messages"][-2].content == "by researcher; by editor"
    assert [(one.operation, one.agent_name) for one in events if one.operation == "put"] == [
        ("put", "researcher"),
        ("put", "editor"),
    ]


def test_tasks_of_the_functional_interface_share_an_artifact(place: Any) -> None:
    @task
    def write(number: int) -> int:
        get_store().put(("writer", "shared"), f"part{number}", {"n": number})
        return number

    @task
    def total() -> int:
        return sum(one.value["n"] for one in get_store().search(("reader", "shared")))

    with CoherentStore(store=place) as store:

        @entrypoint(store=store)
        def workflow(count: int) -> int:
            for future in [write(number) for number in range(count)]:
                future.result()
            return int(total().result())

        assert workflow.invoke(5) == 10
