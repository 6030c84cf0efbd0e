"""How far a graph may run ahead of what is stored of it."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from langgraph.graph import START, StateGraph

from ropewalk.adapters.langgraph import RopewalkSaver
from ropewalk.errors import InvalidInput, NotStorable
from ropewalk.store import MemoryStore
from ropewalk.store.wrappers import WrapperStore
from tests.frameworks.langgraph.graphs import Log, line_graph, thread

R = TypeVar("R")
STEPS = 60
PATIENCE = 60.0


class SlowStore(WrapperStore):
    """Takes its time to store anything, or waits until it may."""

    may: threading.Event | None = None

    def _call(self, method: str, call: Callable[[], R]) -> R:
        if "commit" in method and self.may is not None:
            assert self.may.wait(PATIENCE), "the graph did not run ahead"
        elif "commit" in method:
            time.sleep(0.01)
        return super()._call(method, call)


def most_ahead(store: SlowStore, backlog: int, enough: int = STEPS) -> int:
    """How many steps at most a node was ahead of what was stored when it ran.

    The store may store something once so many steps are `enough`.
    """
    with store, RopewalkSaver(store, backlog=backlog) as saver:
        graph = line_graph(saver, STEPS)
        ahead = []
        for ran, _ in enumerate(graph.stream({"log": []}, thread(recursion_limit=2 * STEPS)), 1):
            found = saver.get_tuple(thread())
            ahead.append(ran - (0 if found is None else found.metadata["step"]))
            if store.may is not None and ran == enough:
                store.may.set()

        assert graph.get_state(thread()).values["count"] == STEPS and saver.lag == 0
        return max(ahead)


def test_a_graph_waits_for_a_store_that_is_slow() -> None:
    assert most_ahead(SlowStore(MemoryStore()), backlog=2) <= 8


def test_a_graph_runs_ahead_of_a_store_as_far_as_it_may() -> None:
    store = SlowStore(MemoryStore())
    store.may = threading.Event()

    assert most_ahead(store, backlog=64, enough=20) >= 20


def test_nothing_is_behind_once_a_graph_has_ended(saver: RopewalkSaver) -> None:
    line_graph(saver).invoke({"log": []}, thread())

    assert saver.lag == 0


@pytest.mark.parametrize("wrong", [0, -1, True, 1.5, "many"])
def test_another_bound_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidInput, match="backlog"):
        RopewalkSaver(backlog=wrong)


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_what_cannot_be_stored_fails_with_its_place(saver: RopewalkSaver, durability: Any) -> None:
    def bad(state: Log) -> dict[str, Any]:
        return {"log": ["fine", {"deep": [lambda: None]}]}

    builder = StateGraph(Log)
    builder.add_node("bad", bad)
    builder.add_edge(START, "bad")
    graph = builder.compile(checkpointer=saver)

    with pytest.raises(NotStorable, match=r'log.*\["deep"\]\[0\]'):
        graph.invoke({"log": ["given"]}, thread(), durability=durability)


def test_a_put_that_fails_stops_no_graph() -> None:
    def bad(state: Log) -> dict[str, Any]:
        return {"log": [lambda: None]}

    builder = StateGraph(Log)
    names = [f"n{number}" for number in range(12)]
    for name in names:
        builder.add_node(name, bad if name == "n1" else lambda state: {"count": 1})
    builder.add_edge(START, names[0])
    for before, after in itertools.pairwise(names):
        builder.add_edge(before, after)
    with RopewalkSaver(backlog=1) as saver:
        graph = builder.compile(checkpointer=saver)

        with pytest.raises(NotStorable):
            graph.invoke({"log": ["given"]}, thread())


def test_a_version_that_is_none_is_refused() -> None:
    with RopewalkSaver() as saver, pytest.raises(InvalidInput, match="whole number"):
        saver.get_next_version("abc", None)
