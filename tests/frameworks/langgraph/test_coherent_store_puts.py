"""Nodes that only put: they work as on LangGraph's own store, and what was read stays protected."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langgraph.config import get_store
from langgraph.graph import START, StateGraph
from langgraph.store.base import BaseStore, GetOp, PutOp
from langgraph.store.memory import InMemoryStore
from langgraph.types import Send

from ropewalk.adapters.langgraph import CoherentStore
from ropewalk.adapters.langgraph.coherent import lineage
from ropewalk.errors import VersionConflict
from tests.conftest import SOAK
from tests.frameworks.langgraph.coherent import (
    MANY,
    PLACE,
    PLANNER,
    REVIEWER,
    Counting,
    Open,
    Work,
    number_in,
)

SEEDS = 400 if SOAK else 25
KEYS = ("plan", "notes", "n")


def in_turn(*nodes: Callable[..., Any]) -> Any:
    """A graph of nodes one after the other."""
    builder = StateGraph(Counting)
    builder.add_sequence([(f"node {number}", node) for number, node in enumerate(nodes)])
    builder.add_edge(START, "node 0")
    return builder


def elsewhere(change: Callable[..., Any], *arguments: Any) -> None:
    """Let somebody do something who is no part of the run."""
    other = threading.Thread(target=change, args=arguments)
    other.start()
    other.join()


# Beside LangGraph's own store.


class PuttingGraphs:
    """Random graphs whose nodes only put and delete, the same for every store."""

    def __init__(self, seed: str) -> None:
        self._seed = seed

    def run(self, store: BaseStore, *, at_once: bool) -> dict[str, Any]:
        """Let some runs go; what is there at the end."""
        choose = random.Random(self._seed)
        for _ in range(choose.randint(1, 3)):
            graph = self._graph(choose, 2, at_once).compile(store=store)
            for _ in range(choose.randint(1, 2)):
                graph.invoke({})
        return {one.key: one.value for one in store.search(PLACE, limit=100)}

    def _graph(self, choose: random.Random, depth: int, at_once: bool) -> Any:
        builder = StateGraph(Counting)
        before: Any = START
        for step in range(choose.randint(1, 3)):
            names = [f"agent {step}.{one}" for one in range(choose.randint(1, 2 if at_once else 1))]
            for name in names:
                builder.add_node(name, self._node(choose, depth, at_once))
                builder.add_edge(before, name)
            before = names
        return builder

    def _node(self, choose: random.Random, depth: int, at_once: bool) -> Any:
        kind = choose.choice(["put", "put", "batch", "delete", "graph", "call"])
        if depth and kind in ("graph", "call"):
            inside = self._graph(choose, depth - 1, at_once).compile()
            return inside if kind == "graph" else lambda _: inside.invoke({}) or {}
        key, value = choose.choice(KEYS), {"n": choose.randint(1, 3)}
        if kind == "delete":
            return lambda _: get_store().delete(PLACE, key)
        if kind == "batch":
            other = choose.choice(KEYS)
            ops = [PutOp(PLACE, key, value), PutOp(PLACE, other, {"n": choose.randint(1, 3)})]
            return lambda _: get_store().batch(ops) and {}
        return lambda _: get_store().put(PLACE, key, value)


@pytest.mark.parametrize("ttl", [None, {}], ids=["plain", "ttl"])
@pytest.mark.parametrize("identity", ["namespace", "config"])
def test_nodes_that_put_one_after_the_other_leave_what_they_leave_in_langgraphs_store(
    identity: Any, ttl: Any
) -> None:
    for seed in range(SEEDS):
        graphs = PuttingGraphs(f"{identity} {seed}")
        with CoherentStore(identity=identity, ttl=ttl) as store:
            left = graphs.run(store, at_once=False)

        assert left == graphs.run(InMemoryStore(), at_once=False), f"seed {seed}"


@pytest.mark.parametrize("identity", ["namespace", "config"])
def test_nodes_that_put_at_once_are_never_refused(open_store: Open, identity: Any) -> None:
    for seed in range(SEEDS // 5):
        graphs, store = PuttingGraphs(f"{identity} {seed}"), open_store(identity=identity)
        with ThreadPoolExecutor(3) as pool:
            runs = [pool.submit(graphs.run, store, at_once=True) for _ in range(3)]

        assert [one.exception() for one in runs] == [None] * 3, f"seed {seed}"


# What counts as read.


def test_a_node_that_only_puts_replaces_what_another_run_put(open_store: Open) -> None:
    told: list[Any] = []
    store = open_store(identity="config", on_metric=told.append)

    def say(number: int) -> Any:
        return lambda _: get_store().put(PLACE, "n", {"n": number})

    def others(_: Any) -> None:
        elsewhere(in_turn(say(50)).compile(store=store, name="other").invoke, {})
        elsewhere(store.edit, PLACE, "n", lambda _: {"n": 99})

    in_turn(say(1), others, say(2)).compile(store=store).invoke({})
    store.core.flush()

    assert number_in(store) == 2
    assert [one.operation for one in told if one.operation != "get"][-2:] == ["put", "replaced"]
    assert (told[-1].namespace, told[-1].key) == (PLACE, "n")


def test_what_is_put_without_a_read_is_merged_where_it_can_be(open_store: Open) -> None:
    store = open_store()
    store.put(PLANNER, "plan", {"title": "A", "steps": 0})
    store.edit(REVIEWER, "plan", lambda value: {**value, "steps": 1})
    store.put(PLANNER, "plan", {"title": "B", "steps": 0})
    found: Any = store.get(PLANNER, "plan")

    assert found.value == {"title": "B", "steps": 1}


READS: dict[str, Callable[[CoherentStore], Any]] = {
    "get": lambda store: store.get(PLANNER, "plan"),
    "aget": lambda store: asyncio.run(store.aget(PLANNER, "plan")),
    "batch": lambda store: store.batch([GetOp(PLANNER, "plan")]),
    "search": lambda store: store.search(PLANNER),
    "edit": lambda store: store.edit(PLANNER, "plan", lambda value: value),
}


@pytest.mark.parametrize("way", READS)
def test_what_was_read_since_the_last_put_is_not_replaced(open_store: Open, way: str) -> None:
    store = open_store()
    store.put(PLANNER, "plan", {"title": "A"})
    READS[way](store)
    store.edit(REVIEWER, "plan", lambda _: {"title": "B"})

    with pytest.raises(VersionConflict):
        store.put(PLANNER, "plan", {"title": "C"})
    with pytest.raises(VersionConflict):
        store.batch([PutOp(PLANNER, "plan", {"title": "C"})])
    assert store.get(REVIEWER, "plan").value == {"title": "B"}  # type: ignore[union-attr]


def test_a_put_after_a_put_replaces_although_there_was_a_read_before_both(
    open_store: Open,
) -> None:
    store = open_store()
    store.put(PLANNER, "plan", {"title": "A"})
    store.get(PLANNER, "plan")
    store.put(PLANNER, "plan", {"title": "B"})
    store.edit(REVIEWER, "plan", lambda _: {"title": "C"})
    store.put(PLANNER, "plan", {"title": "D"})

    assert store.get(REVIEWER, "plan").value == {"title": "D"}  # type: ignore[union-attr]


def test_what_a_run_read_is_protected_from_a_node_that_puts_beside_it(open_store: Open) -> None:
    store, both = open_store(identity="config"), threading.Barrier(2)
    store.put(PLACE, "n", {"n": 0})

    def look(_: Any) -> Counting:
        seen = number_in(get_store())
        both.wait(30)
        return {"seen": seen}

    def beside(_: Any) -> None:
        both.wait(30)
        get_store().put(PLACE, "n", {"n": 7})

    def say(state: Counting) -> None:
        elsewhere(store.edit, PLACE, "n", lambda _: {"n": 9})
        get_store().put(PLACE, "n", {"n": state["seen"] + 1})

    builder = StateGraph(Counting)
    for node in (look, beside, say):
        builder.add_node(node.__name__, node)
    builder.add_edge(START, "look")
    builder.add_edge(START, "beside")
    builder.add_edge(["look", "beside"], "say")

    with pytest.raises(VersionConflict):
        builder.compile(store=store).invoke({})
    assert number_in(store) == 9


@pytest.mark.parametrize("identity", ["namespace", "config"])
def test_a_node_may_put_what_it_took_away_whatever_others_put_then(
    open_store: Open, identity: Any
) -> None:
    store = open_store(identity=identity)

    def renew(_: Any) -> None:
        get_store().put(PLACE, "n", {"n": 1})
        get_store().delete(PLACE, "n")
        elsewhere(store.put, PLACE, "n", {"n": 9})
        get_store().put(PLACE, "n", {"n": 2})

    in_turn(renew).compile(store=store).invoke({})

    assert number_in(store) == 2


def test_what_was_taken_away_meanwhile_is_put_again(open_store: Open) -> None:
    store = open_store()
    store.put(PLANNER, "plan", {"title": "A"})
    store.delete(REVIEWER, "plan")
    store.put(PLANNER, "plan", {"title": "A"})

    assert store.get(REVIEWER, "plan").value == {"title": "A"}  # type: ignore[union-attr]


def test_tasks_that_only_put_are_never_refused(open_store: Open) -> None:
    store, meet = open_store(identity="config"), threading.Barrier(MANY)

    def say(state: Any) -> Work:
        for number in range(3):
            meet.wait(30)
            get_store().put(PLACE, "n", {"n": number, "by": state["number"]})
        return {"done": [True]}

    builder = StateGraph(Work)
    builder.add_node("say", say)
    tasks = [Send("say", {"number": number}) for number in range(MANY)]
    builder.add_conditional_edges(START, lambda _: tasks)
    given = builder.compile(store=store).invoke({})

    assert given == {"done": [True] * MANY}
    assert number_in(store) == 2


def test_a_put_that_asks_for_a_version_is_still_exact(open_store: Open) -> None:
    store = open_store()
    store.put(PLANNER, "plan", {"title": "A"})
    store.put(REVIEWER, "plan", {"title": "B"})

    with pytest.raises(VersionConflict):
        store.put(PLANNER, "plan", {"title": "C"}, if_version=1)
    store.put(PLANNER, "plan", {"title": "C"}, if_version=2)


def test_who_chose_to_be_refused_is_refused_also_without_a_read(open_store: Open) -> None:
    store = open_store(on_conflict="raise")
    store.put(PLANNER, "plan", {"title": "A"})
    store.edit(REVIEWER, "plan", lambda _: {"title": "B"})

    with pytest.raises(VersionConflict):
        store.put(PLANNER, "plan", {"title": "C"})


def test_many_puts_are_remembered_without_being_refused(
    open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lineage, "_MOST", 20)
    store = open_store()

    def say(_: Any) -> None:
        for number in range(40):
            get_store().put(PLACE, f"note {number}", {"n": number})
        elsewhere(store.edit, PLACE, "note 0", lambda _: {"n": 99})
        get_store().put(PLACE, "note 0", {"n": 100})

    in_turn(say).compile(store=store).invoke({})

    assert store.get(PLACE, "note 0").value == {"n": 100}  # type: ignore[union-attr]
