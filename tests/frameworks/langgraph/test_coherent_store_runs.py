"""One piece of work that several nodes do: what they put is compared with what their run got."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest
from langchain_core.runnables import RunnableLambda, RunnableParallel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_store
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph

from ropewalk.adapters.langgraph import RopewalkSaver
from ropewalk.errors import VersionConflict
from tests.frameworks.langgraph.coherent import (
    MANY,
    PLACE,
    Counting,
    Open,
    Work,
    add_one,
    number_in,
)


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
        say(say(look().result()).result()).result()
        if others:
            last = look().result()
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


def test_what_many_tasks_of_a_function_put_at_once_is_kept_or_refused(open_store: Open) -> None:
    many = 24  # More than a task remembers of what is done inside of it.
    store, all_began = open_store(), threading.Barrier(many)
    store.put(PLACE, "n", {})

    @task
    def add(name: str) -> str | None:
        all_began.wait(30)
        try:
            get_store().put(PLACE, "n", {name: True})
        except VersionConflict:
            return None
        return name

    @entrypoint(store=store)
    def add_all(_: Any) -> list[str | None]:
        get_store().get(PLACE, "n")
        return [one.result() for one in [add(f"part {number}") for number in range(many)]]

    given = add_all.invoke(0, {"max_concurrency": 2 * many})
    found: Any = store.get(PLACE, "n")

    assert sorted(found.value) == sorted(one for one in given if one)
    assert len(found.value) > 1


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


@pytest.mark.parametrize("identity", ["namespace", "config"])
@pytest.mark.parametrize("again", [False, True])
def test_a_node_that_found_nothing_may_put_anew_what_its_run_had_got(
    open_store: Open, identity: Any, again: bool
) -> None:
    store = open_store(identity=identity)
    store.put(PLACE, "n", {"n": 0})

    def elsewhere(change: Any, *given: Any) -> None:
        other = threading.Thread(target=change, args=(PLACE, "n", *given))
        other.start()
        other.join()

    def renew(_: Any) -> Counting:
        elsewhere(store.delete)
        assert get_store().get(PLACE, "n") is None
        if again:
            elsewhere(store.put, {"n": 9})
        get_store().put(PLACE, "n", {"n": 1})
        return {}

    builder = StateGraph(Counting)
    builder.add_sequence([("look", lambda _: {"seen": number_in(get_store())}), ("renew", renew)])
    builder.add_edge(START, "look")
    graph = builder.compile(store=store)

    if again:
        with pytest.raises(VersionConflict):
            graph.invoke({})
    else:
        graph.invoke({})
    assert number_in(store) == (9 if again else 1)


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
    held = builder.compile(store=store, checkpointer=RopewalkSaver(), interrupt_before=["say"])
    thread: Any = {"configurable": {"thread_id": "t"}}
    held.invoke({}, thread)
    store.edit(at("boss"), "n", lambda _: {"n": 9})

    with pytest.raises(VersionConflict):
        held.invoke(None, thread)
    assert number_in(store) == 9


def test_what_a_conversation_loads_anew_it_may_save(open_store: Open) -> None:
    store = open_store(identity="config")
    store.put(PLACE, "n", {"n": 0})

    def load(_: Any) -> Counting:
        return {"seen": number_in(get_store())}

    def save(state: Counting) -> Counting:
        get_store().put(PLACE, "n", {"n": state["seen"] + 1})
        return {}

    builder = StateGraph(Counting)
    builder.add_sequence([load, save])
    builder.add_edge(START, "load")
    graph = builder.compile(store=store, checkpointer=RopewalkSaver())
    for turn in range(1, 4):
        graph.invoke({}, {"configurable": {"thread_id": "t"}})
        store.edit(PLACE, "n", lambda value: {"n": value["n"] + 10})

        assert number_in(store) == 11 * turn


def test_a_loop_that_loads_anew_what_it_was_refused_may_save(open_store: Open) -> None:
    store = open_store(identity="config")
    store.put(PLACE, "n", {"n": 0})
    refused: list[int] = []

    def load(_: Any) -> Counting:
        return {"seen": number_in(get_store())}

    def meanwhile(state: Counting) -> Counting:
        if len(refused) < 2:
            other = threading.Thread(
                target=store.edit, args=(PLACE, "n", lambda value: {"n": value["n"] + 10})
            )
            other.start()
            other.join()
        return {}

    def save(state: Counting) -> Counting:
        try:
            get_store().put(PLACE, "n", {"n": state["seen"] + 1})
        except VersionConflict:
            refused.append(state["seen"])
            return {"seen": -1}
        return {}

    builder = StateGraph(Counting)
    builder.add_sequence([load, meanwhile, save])
    builder.add_edge(START, "load")
    builder.add_conditional_edges("save", lambda state: "load" if state["seen"] < 0 else END)
    builder.compile(store=store).invoke({})

    assert refused == [0, 10]
    assert number_in(store) == 21
