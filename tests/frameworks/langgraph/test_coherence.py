"""Shared artifacts in graphs: fresh before a node, committed after it."""

from __future__ import annotations

import asyncio
import operator
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, RetryPolicy, Send, interrupt
from pydantic import BaseModel

from ropewalk.adapters.langgraph import CoherenceAdapter, RopewalkSaver
from ropewalk.coherence import State
from ropewalk.errors import InvalidInput, NotFound, VersionConflict
from tests.frameworks.sharing import SharingSuite


class TestSharing(SharingSuite):
    adapter_class = CoherenceAdapter

    def given(self, adapter: Any, agent: str, names: list[str], **options: Any) -> dict[str, Any]:
        found = adapter.before_node(agent, names, **options)
        return {name: one["content"] for name, one in found.items()}

    def committed(
        self, adapter: Any, agent: str, writes: Mapping[str, Any], **options: Any
    ) -> dict[str, int]:
        versions: dict[str, int] = adapter.commit_outputs(agent, writes, **options)
        return versions

    async def agiven(self, adapter: Any, agent: str, names: list[str]) -> dict[str, Any]:
        found = await adapter.abefore_node(agent, names)
        return {name: one["content"] for name, one in found.items()}

    async def acommitted(self, adapter: Any, agent: str, writes: Any) -> dict[str, int]:
        versions: dict[str, int] = await adapter.acommit_outputs(agent, writes)
        return versions


class Work(TypedDict, total=False):
    log: Annotated[list[str], operator.add]
    plan: Any


@pytest.fixture
def adapter() -> Iterator[CoherenceAdapter]:
    with CoherenceAdapter() as made:
        made.register_artifact(name="plan", content={"steps": []})
        yield made


def graph_of(*nodes: Any, schema: Any = Work, **options: Any) -> StateGraph[Any]:
    """A graph of nodes, one after the other."""
    builder: StateGraph[Any] = StateGraph(schema)
    names = [f"{node.__name__}-{at}" for at, node in enumerate(nodes)]
    for name, node in zip(names, nodes, strict=True):
        builder.add_node(name, node, **options)
    for before, after in zip([START, *names], [*names, END], strict=True):
        builder.add_edge(before, after)
    return builder


def plan_of(adapter: CoherenceAdapter) -> Any:
    return adapter.core.read("onlooker", "plan").value


def add_step(adapter: CoherenceAdapter, agent: str) -> Callable[..., Any]:
    @adapter.node(agent, reads=["plan"], writes=["plan"])
    def step(state: Work, artifacts: dict[str, Any]) -> dict[str, Any]:
        steps = artifacts["plan"]["steps"]
        return {"plan": {"steps": [*steps, agent]}, "log": [f"{agent} saw {len(steps)}"]}

    return step


def test_before_a_node_an_artifact_has_version_content_and_state(
    adapter: CoherenceAdapter,
) -> None:
    found = adapter.before_node("planner", ["plan"], now_tick=1)

    assert found == {"plan": {"version": 1, "content": {"steps": []}, "state": State.SHARED}}


def test_a_node_works_on_what_the_node_before_it_committed(adapter: CoherenceAdapter) -> None:
    graph = graph_of(add_step(adapter, "planner"), add_step(adapter, "reviewer")).compile()
    result = graph.invoke({"log": []})

    assert result == {"log": ["planner saw 0", "reviewer saw 1"]}
    assert plan_of(adapter) == {"steps": ["planner", "reviewer"]}


def test_an_asynchronous_node_does_the_same(adapter: CoherenceAdapter) -> None:
    @adapter.node("planner", reads=["plan"], writes=["plan"])
    async def planner(state: Work, artifacts: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"plan": {"steps": [*artifacts["plan"]["steps"], "planned"]}, "log": ["done"]}

    result = asyncio.run(graph_of(planner, planner).compile().ainvoke({"log": []}))

    assert result == {"log": ["done", "done"]}
    assert plan_of(adapter) == {"steps": ["planned", "planned"]}


def test_what_is_no_artifact_goes_to_the_graph(adapter: CoherenceAdapter) -> None:
    @adapter.node("planner", reads=["plan"])
    def planner(state: Work, artifacts: dict[str, Any]) -> dict[str, Any]:
        return {"plan": artifacts["plan"], "log": ["only in the graph"]}

    result = graph_of(planner).compile().invoke({"log": []})

    assert result == {"plan": {"steps": []}, "log": ["only in the graph"]}
    assert plan_of(adapter) == {"steps": []}


def test_an_artifact_is_in_no_checkpoint(adapter: CoherenceAdapter) -> None:
    config: RunnableConfig = {"configurable": {"thread_id": "one"}}
    with RopewalkSaver() as saver:
        graph = graph_of(add_step(adapter, "planner")).compile(checkpointer=saver)
        graph.invoke({"log": []}, config)
        values = graph.get_state(config).values

    assert "plan" not in values


def test_a_node_that_raises_commits_nothing(adapter: CoherenceAdapter) -> None:
    @adapter.node("planner", reads=["plan"], writes=["plan"])
    def planner(state: Work, artifacts: dict[str, Any]) -> dict[str, Any]:
        artifacts["plan"]["steps"].append("half done")
        raise RuntimeError("no answer")

    with pytest.raises(RuntimeError, match="no answer"):
        graph_of(planner).compile().invoke({"log": []})
    assert plan_of(adapter) == {"steps": []}


def test_a_node_that_waits_for_a_person_commits_nothing_until_it_goes_on(
    adapter: CoherenceAdapter,
) -> None:
    @adapter.node("planner", reads=["plan"], writes=["plan"])
    def planner(state: Work, artifacts: dict[str, Any]) -> dict[str, Any]:
        steps = [*artifacts["plan"]["steps"], "asked"]
        answer = interrupt("may I?")
        return {"plan": {"steps": [*steps, answer]}}

    config: RunnableConfig = {"configurable": {"thread_id": "one"}}
    graph = graph_of(planner).compile(checkpointer=InMemorySaver())
    graph.invoke({"log": []}, config)
    while_waiting = plan_of(adapter)
    adapter.core.write("reviewer", "plan", {"steps": ["reviewed"]})
    graph.invoke(Command(resume="yes"), config)

    assert while_waiting == {"steps": []}
    assert plan_of(adapter) == {"steps": ["reviewed", "asked", "yes"]}


def test_an_artifact_that_is_not_there_stops_the_graph(adapter: CoherenceAdapter) -> None:
    @adapter.node("planner", reads=["notes"])
    def planner(state: Work, artifacts: dict[str, Any]) -> None:
        raise AssertionError("not reached")

    with pytest.raises(NotFound, match="notes"):
        graph_of(planner).compile().invoke({"log": []})


def test_a_retry_policy_gives_each_attempt_fresh_artifacts(adapter: CoherenceAdapter) -> None:
    seen: list[list[str]] = []

    @adapter.node("planner", reads=["plan"], writes=["plan"])
    def planner(state: Work, artifacts: dict[str, Any]) -> dict[str, Any]:
        steps = artifacts["plan"]["steps"]
        seen.append(steps)
        if len(seen) == 1:
            adapter.core.write("reviewer", "plan", {"steps": ["reviewed"]})
        return {"plan": {"steps": [*steps, "planned"]}}

    policy = RetryPolicy(initial_interval=0.001, jitter=False)
    graph_of(planner, retry_policy=policy).compile().invoke({"log": []})

    assert seen == [[], ["reviewed"]]
    assert plan_of(adapter) == {"steps": ["reviewed", "planned"]}


def test_a_node_may_write_what_it_does_not_read_and_others_wrote_before(
    adapter: CoherenceAdapter,
) -> None:
    runs: list[int] = []

    @adapter.node("planner", writes=["plan"])
    def planner(state: Work) -> dict[str, Any]:
        runs.append(1)
        return {"plan": f"plan {len(runs)}"}

    graph = graph_of(planner).compile()
    graph.invoke({"log": []})
    adapter.core.edit("reviewer", "plan", lambda plan: f"{plan}, reviewed")
    graph.invoke({"log": []})

    assert plan_of(adapter) == "plan 2"
    assert len(runs) == 2


def test_a_retry_begins_from_what_is_newest_also_where_a_node_does_not_read(
    adapter: CoherenceAdapter,
) -> None:
    runs: list[int] = []

    @adapter.node("planner", writes=["plan"])
    def planner(state: Work) -> dict[str, Any]:
        runs.append(1)
        if len(runs) == 1:
            adapter.core.write("reviewer", "plan", "reviewed")
        return {"plan": "planned"}

    policy = RetryPolicy(initial_interval=0.001, jitter=False)
    graph_of(planner, retry_policy=policy).compile().invoke({"log": []})

    assert len(runs) == 2
    assert adapter.core.read("onlooker", "plan").version == 3


@pytest.mark.parametrize("kind", ["function", "coroutine"])
def test_a_node_waits_for_an_artifact_that_another_agent_holds(
    adapter: CoherenceAdapter, kind: str
) -> None:
    grant = adapter.core.hold("reviewer", "plan")
    step = add_step(adapter, "planner")

    async def later(state: Work, artifacts: dict[str, Any]) -> dict[str, Any]:
        return {"plan": {"steps": [*artifacts["plan"]["steps"], "planner"]}}

    node = step
    if kind == "coroutine":
        node = adapter.node("planner", reads=["plan"], writes=["plan"])(later)
    giving_back = threading.Timer(0.1, grant.release)
    giving_back.start()
    asyncio.run(graph_of(node).compile().ainvoke({"log": []}))
    giving_back.join()

    assert plan_of(adapter) == {"steps": ["planner"]}


def side_by_side(*nodes: Any) -> Any:
    """A graph whose nodes run at the same time."""
    builder: StateGraph[Any] = StateGraph(Work)
    for at, node in enumerate(nodes):
        builder.add_node(f"node-{at}", node)
        builder.add_edge(START, f"node-{at}")
        builder.add_edge(f"node-{at}", END)
    return builder.compile()


def meeting(
    adapter: CoherenceAdapter, agent: str, change: Callable[[Any, int], Any], at: Any, n: int
) -> Any:
    """A node that changes the plan after all of them have read it."""

    @adapter.node(agent, reads=["plan"], writes=["plan"])
    def work(state: Work, artifacts: dict[str, Any]) -> dict[str, Any]:
        at.wait(60)
        return {"plan": change(artifacts["plan"], n), "log": [agent]}

    return work


@pytest.mark.parametrize("agents", [("a", "b"), ("a", "a")], ids=["two agents", "one agent"])
def test_of_two_nodes_that_change_the_same_one_is_refused(agents: tuple[str, str]) -> None:
    with CoherenceAdapter() as adapter:
        adapter.register_artifact(name="plan", content="one")
        at = threading.Barrier(2)
        nodes = [
            meeting(adapter, agent, lambda plan, n: f"{plan} {n}", at, n)
            for n, agent in enumerate(agents)
        ]

        with pytest.raises(VersionConflict):
            side_by_side(*nodes).invoke({"log": []})
        assert plan_of(adapter) in ("one 0", "one 1")


@pytest.mark.parametrize("agents", [("a", "b"), ("a", "a")], ids=["two agents", "one agent"])
def test_changes_of_two_nodes_are_merged(agents: tuple[str, str]) -> None:
    with CoherenceAdapter(mergers={"steps": "append", "n": "add"}) as adapter:
        adapter.register_artifact(name="plan", content={"steps": [], "n": 0})
        at = threading.Barrier(2)

        def change(plan: Any, n: int) -> Any:
            return {"steps": [*plan["steps"], n], "n": plan["n"] + 1, f"by-{n}": 1}

        nodes = [meeting(adapter, agent, change, at, n) for n, agent in enumerate(agents)]
        side_by_side(*nodes).invoke({"log": []})
        found = plan_of(adapter)

    assert sorted(found.pop("steps")) == [0, 1]
    assert found == {"n": 2, "by-0": 1, "by-1": 1}


def test_graphs_that_run_beside_each_other_lose_nothing(memory_folder: Path) -> None:
    place, runs = str(memory_folder / "store"), 8
    with CoherenceAdapter(place) as adapter:
        adapter.register_artifact(name="plan", content={"steps": []})

    def run(agent: str) -> None:
        policy = RetryPolicy(initial_interval=0.001, max_interval=0.05, max_attempts=1000)
        with CoherenceAdapter(place) as adapter:
            graph = graph_of(add_step(adapter, agent), retry_policy=policy).compile()
            for _ in range(runs):
                graph.invoke({"log": []})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, "abcd"))
    with CoherenceAdapter(place) as adapter:
        found = plan_of(adapter)

    assert sorted(found["steps"]) == sorted("abcd" * runs)


def test_tasks_that_are_sent_to_one_node_lose_nothing() -> None:
    with CoherenceAdapter(mergers={list: "append"}) as adapter:
        adapter.register_artifact(name="plan", content=[])
        at = threading.Barrier(4)

        @adapter.node("worker", reads=["plan"], writes=["plan"])
        def work(state: Any, artifacts: dict[str, Any]) -> dict[str, Any]:
            at.wait(60)
            return {"plan": [*artifacts["plan"], state]}

        builder: StateGraph[Any] = StateGraph(Work)
        builder.add_node("work", work)
        builder.add_conditional_edges(START, lambda _: [Send("work", n) for n in range(4)])
        builder.compile().invoke({"log": []}, {"max_concurrency": 4})
        found = plan_of(adapter)

    assert sorted(found) == [0, 1, 2, 3]


def test_a_command_may_carry_artifacts(adapter: CoherenceAdapter) -> None:
    @adapter.node("planner", writes=["plan"])
    def first(state: Work) -> Command[Literal["last"]]:
        return Command(goto="last", update={"plan": {"steps": [1]}, "log": ["first"]})

    builder: StateGraph[Any] = StateGraph(Work)
    builder.add_node("first", first)
    builder.add_node("last", lambda state: {"log": ["last"]})
    builder.add_edge(START, "first")
    graph = builder.compile()
    result = graph.invoke({"log": []})

    assert result == {"log": ["first", "last"]}
    assert plan_of(adapter) == {"steps": [1]}
    assert ("first", "last") in {(edge.source, edge.target) for edge in graph.get_graph().edges}


def test_updates_may_be_lists_and_pairs(adapter: CoherenceAdapter) -> None:
    adapter.register_artifact(name="notes", content="")

    @adapter.node("planner", writes=["plan", "notes"])
    def planner(state: Work) -> Any:
        pairs = Command(update=[("notes", "noted"), ("log", ["pair"])])
        return [{"plan": "planned", "log": ["dict"]}, pairs]

    result = graph_of(planner).compile().invoke({"log": []})

    assert result == {"log": ["dict", "pair"]}
    assert plan_of(adapter) == "planned"
    assert adapter.core.read("onlooker", "notes").value == "noted"


def test_what_could_not_be_committed_is_refused(adapter: CoherenceAdapter) -> None:
    async def later(artifacts: dict[str, Any]) -> dict[str, Any]:
        return artifacts

    def parts(state: Work, artifacts: dict[str, Any]) -> Iterator[Any]:
        yield artifacts

    mark = adapter.node("planner", reads=["plan"], writes=["plan"])
    node = mark(lambda state, artifacts: later(artifacts))
    with pytest.raises(InvalidInput, match="returns a dict"):
        graph_of(node).compile().invoke({"log": []})
    with pytest.raises(InvalidInput, match="yields"):
        mark(parts)


class Model(BaseModel):
    topic: str


@dataclass
class Record:
    topic: str


@pytest.mark.parametrize(
    "update",
    [
        {"plan": {"a": 2}},
        [("plan", {"a": 2})],
        [{"plan": {"a": 2}}],
        Command(update={"plan": {"a": 2}}),
    ],
)
def test_a_node_that_changes_what_it_only_reads_is_refused(
    adapter: CoherenceAdapter, update: Any
) -> None:
    @adapter.node("planner", reads=["plan"])
    def forgetful(state: Any, artifacts: Any) -> Any:
        return update

    with pytest.raises(InvalidInput, match="Name it in writes="):
        forgetful({})


@pytest.mark.parametrize("schema", [Model, Record])
def test_a_node_gets_the_state_and_what_else_it_asks_langgraph_for(
    adapter: CoherenceAdapter, schema: Any
) -> None:
    @adapter.node("planner", reads=["plan"], writes=["plan"])
    def planner(state: Any, config: RunnableConfig, *, artifacts: dict[str, Any]) -> dict[str, Any]:
        user = config["configurable"]["user"]
        return {"plan": {"steps": [state.topic, user]}, "topic": "done"}

    graph = graph_of(planner, schema=schema).compile()
    result = graph.invoke({"topic": "tea"}, {"configurable": {"user": "ann"}})

    assert result == {"topic": "done"}
    assert plan_of(adapter) == {"steps": ["tea", "ann"]}


class Agent:
    """A node with a life of its own."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, state: Work, artifacts: dict[str, Any]) -> dict[str, Any]:
        return {"plan": {"steps": [*artifacts["plan"]["steps"], self.name]}}

    async def later(self, state: Work, artifacts: dict[str, Any]) -> dict[str, Any]:
        return self(state, artifacts)


def named_step(name: str, state: Work, artifacts: dict[str, Any]) -> dict[str, Any]:
    return Agent(name)(state, artifacts)


def test_callable_objects_methods_and_partials_may_be_nodes(adapter: CoherenceAdapter) -> None:
    mark = adapter.node("planner", reads=["plan"], writes="plan")
    nodes = [mark(Agent("object")), mark(Agent("method").later), mark(partial(named_step, "part"))]
    asyncio.run(graph_of(*nodes).compile().ainvoke({"log": []}))

    assert [node.__name__ for node in nodes] == ["Agent", "later", "named_step"]
    assert plan_of(adapter) == {"steps": ["object", "method", "part"]}


def test_a_node_with_nowhere_to_get_artifacts_is_refused(adapter: CoherenceAdapter) -> None:
    with pytest.raises(InvalidInput, match="artifacts"):
        adapter.node("planner", reads=["plan"])(lambda state: {})
    with pytest.raises(InvalidInput, match="function"):
        adapter.node("planner")(graph_of(add_step(adapter, "planner")).compile())


def test_a_node_without_the_name_of_an_agent_is_refused(adapter: CoherenceAdapter) -> None:
    mark: Any = adapter.node

    with pytest.raises(InvalidInput, match="takes the name of an agent"):
        mark(lambda state: {})
    with pytest.raises(InvalidInput, match="writes is a list of names"):
        mark("planner", writes=5)
