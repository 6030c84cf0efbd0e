"""One agent that does several things at once: what each of them puts is compared with its own."""

from __future__ import annotations

import asyncio
import operator
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypedDict

import pytest
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda, RunnableParallel
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_store
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedStore, ToolNode
from langgraph.store.base import BaseStore, PutOp
from langgraph.store.memory import InMemoryStore
from langgraph.types import RetryPolicy, Send

from holdfast.adapters.langgraph import CoherentStore, HoldfastSaver, _coherent_lines
from holdfast.errors import VersionConflict

PLACE = ("team", "shared")
MANY = 4

Open: TypeAlias = Callable[..., CoherentStore]


@pytest.fixture(params=["memory", "sqlite", "base"])
def open_store(request: pytest.FixtureRequest, memory_folder: Path) -> Iterator[Open]:
    made: list[CoherentStore] = []

    def one(**options: Any) -> CoherentStore:
        if request.param == "sqlite":
            options["store"] = memory_folder / "store"
        elif request.param == "base":
            options["base"] = InMemoryStore()
        made.append(CoherentStore(**options))
        return made[-1]

    yield one
    for store in made:
        store.close()


class Work(TypedDict, total=False):
    done: Annotated[list[bool], operator.add]


def counted(store: BaseStore, meet: threading.Barrier) -> bool:
    """Count up as a plain store would be used; whether the put was taken."""
    found: Any = store.get(PLACE, "n")
    meet.wait(30)
    try:
        store.put(PLACE, "n", {"n": found.value["n"] + 1})
    except VersionConflict:
        return False
    return True


def sending(node: Any, **options: Any) -> StateGraph[Any, Any, Any, Any]:
    """A graph that runs a node several times at once."""
    builder = StateGraph(Work)
    builder.add_node("count", node, **options)
    builder.add_conditional_edges(START, lambda _: [Send("count", {}) for _ in range(MANY)])
    return builder


def number_in(store: BaseStore) -> int:
    found: Any = store.get(PLACE, "n")
    return int(found.value["n"])


@pytest.mark.parametrize("identity", ["namespace", "config"])
def test_of_tasks_that_send_starts_none_takes_away_what_another_put(
    open_store: Open, identity: Any
) -> None:
    store, meet = open_store(identity=identity), threading.Barrier(MANY)
    store.put(PLACE, "n", {"n": 0})
    given = (
        sending(lambda _: {"done": [counted(get_store(), meet)]}).compile(store=store).invoke({})
    )

    assert 1 <= number_in(store) == sum(given["done"])


def test_asynchronous_tasks_that_send_starts_take_nothing_away(open_store: Open) -> None:
    store, meet = open_store(identity="config"), asyncio.Barrier(MANY)
    store.put(PLACE, "n", {"n": 0})

    async def count(_: Any) -> Work:
        found: Any = await get_store().aget(PLACE, "n")
        await meet.wait()
        try:
            await get_store().aput(PLACE, "n", {"n": found.value["n"] + 1})
        except VersionConflict:
            return {"done": [False]}
        return {"done": [True]}

    given = asyncio.run(sending(count).compile(store=store).ainvoke({}))

    assert 1 <= number_in(store) == sum(given["done"])


def test_a_retry_policy_counts_what_was_refused(open_store: Open) -> None:
    store = open_store(identity="config")
    store.put(PLACE, "n", {"n": 0})

    def count(_: Any) -> Work:
        found: Any = get_store().get(PLACE, "n")
        get_store().put(PLACE, "n", {"n": found.value["n"] + 1})
        return {}

    again = RetryPolicy(
        initial_interval=0.001,
        backoff_factor=1.0,
        jitter=False,
        max_attempts=1000,
        retry_on=VersionConflict,
    )
    sending(count, retry_policy=again).compile(store=store).invoke({})

    assert number_in(store) == MANY


def test_changes_of_tasks_at_different_places_are_merged(open_store: Open) -> None:
    store, meet = open_store(identity="config"), threading.Barrier(MANY)
    store.put(PLACE, "n", {})

    def add(_: Any) -> Work:
        found: Any = get_store().get(PLACE, "n")
        own = f"part {meet.wait(30)}"
        get_store().put(PLACE, "n", {**found.value, own: True})
        return {}

    sending(add).compile(store=store).invoke({})
    found: Any = store.get(PLACE, "n")

    assert sorted(found.value) == [f"part {number}" for number in range(MANY)]


def test_tools_of_one_turn_take_nothing_away(open_store: Open) -> None:
    store, meet = open_store(identity="config"), threading.Barrier(MANY)
    store.put(PLACE, "n", {"n": 0})

    @tool
    def count(store: Annotated[BaseStore, InjectedStore()]) -> str:
        """Count up."""
        return str(counted(store, meet))

    calls: Any = [{"name": "count", "args": {}, "id": str(one)} for one in range(MANY)]
    builder = StateGraph(MessagesState)
    builder.add_node("tools", ToolNode([count]))
    builder.add_edge(START, "tools")
    given = builder.compile(store=store).invoke({"messages": [AIMessage("", tool_calls=calls)]})

    taken = [one.content for one in given["messages"][1:]].count("True")
    assert 1 <= number_in(store) == taken


def test_conversations_side_by_side_take_nothing_away(open_store: Open) -> None:
    store = open_store(identity="config")
    store.put(PLACE, "n", {"n": 0})
    read: dict[str, int] = {}

    def look(_: Any, config: RunnableConfig) -> Work:
        read[config["configurable"]["thread_id"]] = number_in(get_store())
        return {}

    def say(_: Any, config: RunnableConfig) -> Work:
        seen = read[config["configurable"]["thread_id"]]
        get_store().put(PLACE, "n", {"n": seen + 1})
        return {}

    builder = StateGraph(Work)
    builder.add_node("look", look)
    builder.add_node("say", say)
    builder.add_edge(START, "look")
    builder.add_edge("look", "say")
    graph = builder.compile(store=store, checkpointer=HoldfastSaver(), interrupt_before=["say"])
    threads: Any = [{"configurable": {"thread_id": one, "agent": "ann"}} for one in ("t1", "t2")]
    for thread in threads:
        graph.invoke({}, thread)
    graph.invoke(None, threads[0])

    with pytest.raises(VersionConflict):
        graph.invoke(None, threads[1])
    assert number_in(store) == 1


class Counting(TypedDict, total=False):
    seen: int


def in_two_nodes(meet: threading.Barrier, *, inside: bool) -> StateGraph[Any, Any, Any, Any]:
    """Counts up in two nodes: one gets, the other puts, in a graph of its own if `inside`."""

    def look(_: Any) -> Counting:
        seen = number_in(get_store())
        meet.wait(30)
        return {"seen": seen}

    def say(state: Counting) -> Counting:
        get_store().put(PLACE, "n", {"n": state["seen"] + 1})
        return {}

    saying = StateGraph(Counting)
    saying.add_node("say", say)
    saying.add_edge(START, "say")
    builder = StateGraph(Counting)
    builder.add_node("look", look)
    builder.add_node("say", saying.compile() if inside else say)
    builder.add_edge(START, "look")
    builder.add_edge("look", "say")
    return builder


@pytest.mark.parametrize("identity", ["namespace", "config"])  # One agent, or one for each node.
@pytest.mark.parametrize("inside", [False, True])
def test_runs_without_a_thread_take_nothing_away(
    open_store: Open, inside: bool, identity: Any
) -> None:
    store, meet = open_store(identity=identity), threading.Barrier(2)
    store.put(PLACE, "n", {"n": 0})
    graph = in_two_nodes(meet, inside=inside).compile(store=store)
    refused: list[VersionConflict] = []

    def run() -> None:
        try:
            graph.invoke({})
        except VersionConflict as conflict:
            refused.append(conflict)

    runs = [threading.Thread(target=run) for _ in range(2)]
    for one in runs:
        one.start()
    for one in runs:
        one.join()

    assert len(refused) == 1
    assert number_in(store) == 1


@pytest.mark.parametrize("identity", ["namespace", "config"])
def test_nodes_of_one_step_that_go_on_from_the_same_read_take_nothing_away(
    open_store: Open, identity: Any
) -> None:
    store, meet = open_store(identity=identity), threading.Barrier(MANY)
    store.put(PLACE, "n", {"n": 0})

    def look(_: Any) -> dict[str, Any]:
        return {"seen": number_in(get_store())}

    def say(state: Any) -> Work:
        meet.wait(30)
        try:
            get_store().put(PLACE, "n", {"n": state["seen"] + 1})
        except VersionConflict:
            return {"done": [False]}
        return {"done": [True]}

    class State(Work, Counting): ...

    builder = StateGraph(State)
    builder.add_node("look", look)
    builder.add_edge(START, "look")
    for number in range(MANY):
        builder.add_node(f"say {number}", say)
        builder.add_edge("look", f"say {number}")
    given = builder.compile(store=store).invoke({})

    assert given["done"].count(True) == number_in(store) == 1


@pytest.mark.parametrize("identity", ["namespace", "config"])
def test_a_task_of_a_function_puts_what_the_function_got(open_store: Open, identity: Any) -> None:
    store = open_store(identity=identity)
    store.put(PLACE, "n", {"n": 0})

    @task
    def say(seen: int) -> None:
        get_store().put(PLACE, "n", {"n": seen + 1})

    @entrypoint(store=store)
    def count(others: bool) -> None:
        seen = number_in(get_store())
        if others:
            elsewhere = threading.Thread(target=store.edit, args=(PLACE, "n", lambda _: {"n": 9}))
            elsewhere.start()
            elsewhere.join()
        say(seen).result()

    with pytest.raises(VersionConflict):
        count.invoke(True)
    count.invoke(False)

    assert number_in(store) == 10


class Turns:
    """Two lines of work that both get an item before one of them, and then the other, puts it."""

    def __init__(self) -> None:
        self._meet = threading.Barrier(2)
        self._first = threading.Event()

    def look(self) -> int:
        seen = number_in(get_store())
        self._meet.wait(30)
        return seen

    def say(self, number: int, seen: int) -> bool:
        """Put one more than was seen; whether that was taken."""
        assert number == 0 or self._first.wait(30)
        try:
            get_store().put(PLACE, "n", {"n": seen + 1})
        except VersionConflict:
            return False
        finally:
            self._first.set()
        return True


class Counted(Counting, Work): ...


def counting(turns: Turns, number: int) -> Any:
    """A graph that counts up in two nodes."""
    builder = StateGraph(Counted)
    builder.add_node("look", lambda _: {"seen": turns.look()})
    builder.add_node("say", lambda state: {"done": [turns.say(number, state["seen"])]})
    builder.add_edge(START, "look")
    builder.add_edge("look", "say")
    return builder.compile()


@pytest.mark.parametrize("identity", ["namespace", "config"])
def test_graphs_that_run_in_one_step_take_nothing_away(open_store: Open, identity: Any) -> None:
    store, turns = open_store(identity=identity), Turns()
    store.put(PLACE, "n", {"n": 0})
    builder = StateGraph(Work)
    for number in range(2):
        inside = counting(turns, number)
        builder.add_node(f"{number}", lambda _, graph=inside: {"done": graph.invoke({})["done"]})
        builder.add_edge(START, f"{number}")

    assert builder.compile(store=store).invoke({})["done"] == [True, False]
    assert number_in(store) == 1


@pytest.mark.parametrize("identity", ["namespace", "config"])
def test_a_graph_and_a_node_of_one_step_take_nothing_away(open_store: Open, identity: Any) -> None:
    store, turns = open_store(identity=identity), Turns()
    store.put(PLACE, "n", {"n": 0})
    builder = StateGraph(Work)
    inside = counting(turns, 1)
    builder.add_node("beside", lambda _: {"done": [turns.say(0, turns.look())]})
    builder.add_node("inside", lambda _: {"done": inside.invoke({})["done"]})
    builder.add_edge(START, "beside")
    builder.add_edge(START, "inside")

    assert builder.compile(store=store).invoke({})["done"] == [True, False]
    assert number_in(store) == 1


@pytest.mark.parametrize("identity", ["namespace", "config"])
def test_graphs_that_one_node_runs_at_once_take_nothing_away(
    open_store: Open, identity: Any
) -> None:
    store, turns = open_store(identity=identity), Turns()
    store.put(PLACE, "n", {"n": 0})

    def node(_: Any) -> Work:
        runs = [RunnableLambda(counting(turns, number).invoke) for number in range(2)]
        both = RunnableParallel(first=runs[0], second=runs[1]).invoke({})
        return {"done": [*both["first"]["done"], *both["second"]["done"]]}

    builder = StateGraph(Work)
    builder.add_node("node", node)
    builder.add_edge(START, "node")

    assert builder.compile(store=store).invoke({})["done"] == [True, False]
    assert number_in(store) == 1


@pytest.mark.parametrize("identity", ["namespace", "config"])
def test_runs_of_one_conversation_at_once_take_nothing_away(
    open_store: Open, identity: Any
) -> None:
    store, turns = open_store(identity=identity), Turns()
    store.put(PLACE, "n", {"n": 0})
    taken: dict[int, bool] = {}

    class State(Counting, total=False):
        number: int

    def say(state: Any) -> dict[str, Any]:
        taken[state["number"]] = turns.say(state["number"], state["seen"])
        return {}

    builder = StateGraph(State)
    builder.add_node("look", lambda _: {"seen": turns.look()})
    builder.add_node("say", say)
    builder.add_edge(START, "look")
    builder.add_edge("look", "say")
    thread: Any = {"configurable": {"thread_id": "t"}}
    graph = builder.compile(store=store, checkpointer=InMemorySaver())
    runs = [
        threading.Thread(target=graph.invoke, args=({"number": number}, thread))
        for number in range(2)
    ]
    for one in runs:
        one.start()
    for one in runs:
        one.join()

    assert taken == {0: True, 1: False}
    assert number_in(store) == 1


@pytest.mark.parametrize("identity", ["namespace", "config"])
def test_tasks_of_a_function_put_what_other_tasks_got(open_store: Open, identity: Any) -> None:
    store = open_store(identity=identity)
    store.put(PLACE, "n", {"n": 0})

    @task
    def look() -> int:
        return number_in(get_store())

    @task
    def say(seen: int) -> int:
        get_store().put(PLACE, "n", {"n": seen + 1})
        return seen + 1

    @entrypoint(store=store)
    def count(others: bool) -> None:
        for _ in range(3):
            say(look().result()).result()
        last = say(say(look().result()).result()).result()
        if others:
            elsewhere = threading.Thread(target=store.edit, args=(PLACE, "n", lambda _: {"n": 99}))
            elsewhere.start()
            elsewhere.join()
            say(last).result()

    count.invoke(False)
    assert number_in(store) == 5
    with pytest.raises(VersionConflict):
        count.invoke(True)
    assert number_in(store) == 99


@pytest.mark.parametrize("identity", ["namespace", "config"])
def test_tasks_of_a_function_that_run_at_once_take_nothing_away(
    open_store: Open, identity: Any
) -> None:
    store, both = open_store(identity=identity), threading.Barrier(2)
    store.put(PLACE, "n", {"n": 0})

    @task
    def look() -> int:
        return number_in(get_store())

    @task
    def say(seen: int) -> bool:
        both.wait(30)
        try:
            get_store().put(PLACE, "n", {"n": seen + 1})
        except VersionConflict:
            return False
        return True

    @entrypoint(store=store)
    def count(_: Any) -> list[bool]:
        seen = look().result()
        return [one.result() for one in [say(seen), say(seen)]]

    assert sorted(count.invoke(0)) == [False, True]
    assert number_in(store) == 1


@pytest.mark.parametrize("identity", ["namespace", "config"])
def test_a_deletion_beside_a_node_does_not_let_it_put_over_what_came_then(
    open_store: Open, identity: Any
) -> None:
    store, over = open_store(identity=identity), threading.Event()
    store.put(PLACE, "n", {"n": 0})

    def erase(_: Any) -> Counting:
        get_store().delete(PLACE, "n")
        again = partial(store.edit, PLACE, "n", add_one, default={"n": 9})
        anew = threading.Thread(target=again)
        anew.start()
        anew.join()
        over.set()
        return {}

    def say(state: Counting) -> Counting:
        assert over.wait(30)
        get_store().put(PLACE, "n", {"n": state["seen"] + 1})
        return {}

    builder = StateGraph(Counting)
    builder.add_node("look", lambda _: {"seen": number_in(get_store())})
    builder.add_node("erase", erase)
    builder.add_node("say", say)
    builder.add_edge(START, "look")
    builder.add_edge("look", "erase")
    builder.add_edge("look", "say")

    with pytest.raises(VersionConflict):
        builder.compile(store=store).invoke({})
    assert number_in(store) == 10


def test_a_node_puts_as_one_agent_what_it_got_as_another(open_store: Open) -> None:
    store = open_store()
    store.put(PLACE, "n", {"n": 0})

    def node(_: Any) -> Counting:
        found: Any = get_store().get(("reader", "shared"), "n")
        elsewhere = threading.Thread(target=store.edit, args=(PLACE, "n", lambda _: {"n": 9}))
        elsewhere.start()
        elsewhere.join()
        get_store().put(("writer", "shared"), "n", {"n": found.value["n"] + 1})
        return {}

    builder = StateGraph(Counting)
    builder.add_node("node", node)
    builder.add_edge(START, "node")

    with pytest.raises(VersionConflict):
        builder.compile(store=store).invoke({})
    assert number_in(store) == 9


@pytest.mark.parametrize("identity", ["namespace", "config"])
def test_what_comes_one_after_the_other_is_never_refused(open_store: Open, identity: Any) -> None:
    store = open_store(identity=identity)
    store.put(PLACE, "n", {"n": 0})

    def look(_: Any) -> Counting:
        return {"seen": number_in(get_store())}

    def say(state: Counting) -> Counting:
        get_store().put(PLACE, "n", {"n": state["seen"] + 1})
        return {}

    def graph(*nodes: Any) -> StateGraph[Any, Any, Any, Any]:
        builder = StateGraph(Counting)
        builder.add_sequence(nodes)
        builder.add_edge(START, nodes[0][0] if isinstance(nodes[0], tuple) else nodes[0].__name__)
        return builder

    looking, saying = graph(look).compile(), graph(say).compile()
    counting = graph(look, say).compile()

    def parts(_: Any) -> Counting:
        for _ in range(20):
            saying.invoke(looking.invoke({}))
            counting.invoke({})
        seen = number_in(get_store())
        saying.invoke({"seen": seen})
        saying.invoke({"seen": seen + 1})
        return {}

    whole = graph(("first", counting), ("parts", parts), ("last", counting), look, say)
    whole.compile(store=store).invoke({})

    assert number_in(store) == 45


def test_an_agent_puts_what_another_one_of_its_run_got(open_store: Open) -> None:
    store = open_store()

    def at(agent: str) -> tuple[str, ...]:
        return (agent, "shared")

    def look(_: Any) -> Counting:
        found: Any = get_store().get(at("planner"), "n")
        return {"seen": found.value["n"]}

    def say(state: Counting) -> Counting:
        get_store().put(at("writer"), "n", {"n": state["seen"] + 1})
        return {}

    store.put(at("boss"), "n", {"n": 0})
    builder = StateGraph(Counting)
    builder.add_sequence([look, say])
    builder.add_edge(START, "look")
    held = builder.compile(store=store, checkpointer=HoldfastSaver(), interrupt_before=["say"])
    thread: Any = {"configurable": {"thread_id": "t"}}
    held.invoke({}, thread)
    store.edit(at("boss"), "n", lambda _: {"n": 9})

    with pytest.raises(VersionConflict):
        held.invoke(None, thread)
    assert number_in(store) == 9


def test_what_a_run_read_too_long_ago_is_not_put_over(
    open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_coherent_lines, "_MOST", 50)
    store = open_store()
    for name in ("n", *map(str, range(30))):
        store.put(PLACE, name, {"n": 0})

    def count(_: Any) -> Work:
        seen = number_in(get_store())
        for name in range(30):
            get_store().get(PLACE, str(name))
        elsewhere = threading.Thread(target=store.put, args=(PLACE, "n", {"n": 100}))
        elsewhere.start()
        elsewhere.join()
        with pytest.raises(VersionConflict):
            get_store().put(PLACE, "n", {"n": seen + 1})
        get_store().put(PLACE, "new", {"n": 1})
        get_store().put(PLACE, "n", {"n": number_in(get_store()) + 1})
        return {}

    builder = StateGraph(Work)
    builder.add_node("count", count)
    builder.add_edge(START, "count")
    builder.compile(store=store).invoke({})

    assert number_in(store) == 101


def test_what_a_part_of_a_node_puts_is_compared_with_what_the_node_got(open_store: Open) -> None:
    store = open_store()
    store.put(PLACE, "n", {"n": 0})

    def count(_: Any) -> Work:
        seen = number_in(get_store())
        # The same agent elsewhere: a thread that does not know of the run.
        elsewhere = threading.Thread(target=store.put, args=(PLACE, "n", {"n": 100}))
        elsewhere.start()
        elsewhere.join()
        part = RunnableLambda(lambda n: get_store().put(PLACE, "n", {"n": n + 1}))
        with pytest.raises(VersionConflict):
            part.invoke(seen)
        return {"done": [True]}

    builder = StateGraph(Work)
    builder.add_node("count", count)
    builder.add_edge(START, "count")
    given = builder.compile(store=store).invoke({})

    assert given == {"done": [True]}
    assert number_in(store) == 100


@pytest.mark.parametrize("batched", [False, True])
def test_a_put_after_one_that_was_merged_keeps_what_was_merged_in(
    open_store: Open, batched: bool
) -> None:
    store = open_store()

    def put(agent: str, value: dict[str, int]) -> None:
        if batched:
            store.batch([PutOp((agent, "shared"), "n", value)])
        else:
            store.put((agent, "shared"), "n", value)

    put("ann", {"a": 0, "b": 0})
    store.get(("bob", "shared"), "n")
    put("bob", {"a": 0, "b": 1})
    put("ann", {"a": 1, "b": 0})
    put("ann", {"a": 2, "b": 0})
    found: Any = store.get(("ann", "shared"), "n")

    assert found.value == {"a": 2, "b": 1}


def test_after_a_merge_that_was_read_the_next_put_takes_its_place(open_store: Open) -> None:
    store = open_store()
    store.put(("ann", "shared"), "n", {"a": 0, "b": 0})
    store.get(("bob", "shared"), "n")
    store.put(("bob", "shared"), "n", {"a": 0, "b": 1})
    store.put(("ann", "shared"), "n", {"a": 1, "b": 0})
    store.get(("ann", "shared"), "n")
    store.put(("ann", "shared"), "n", {"a": 2, "b": 0})
    found: Any = store.get(("ann", "shared"), "n")

    assert found.value == {"a": 2, "b": 0}


def test_edits_that_wait_leave_the_holder_a_thread(open_store: Open) -> None:
    store = open_store()
    store.put(PLACE, "n", {"n": 0})
    many = 20  # More than there are threads for.

    async def work() -> None:
        async with asyncio.timeout(60), await store.ahold(PLACE, "n"):
            edits = [
                asyncio.create_task(store.aedit((f"agent {one}", "shared"), "n", add_one))
                for one in range(many)
            ]
            await asyncio.sleep(0.2)
            await store.aput(PLACE, "n", {"n": 100})
        await asyncio.gather(*edits)

    asyncio.run(work())

    assert number_in(store) == 100 + many


def add_one(value: dict[str, int]) -> dict[str, int]:
    return {"n": value["n"] + 1}
