"""Back to an earlier checkpoint, and on from there."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import StateUpdate

from ropewalk.adapters.langgraph import RopewalkSaver
from tests.frameworks.langgraph.engines import ENGINES
from tests.frameworks.langgraph.graphs import fan_graph, history, line_graph, thread, told

everywhere = pytest.mark.parametrize("engine", ENGINES)


def before(graph: Any, node: str, config: Any = None) -> Any:
    """The newest checkpoint from which a node runs."""
    return next(
        one.config for one in graph.get_state_history(config or thread()) if node in one.next
    )


@everywhere
def test_a_run_is_played_again_from_a_checkpoint(saver: RopewalkSaver) -> None:
    graph = line_graph(saver)
    graph.invoke({"log": ["start"]}, thread())
    state = graph.invoke(None, before(graph, "n1"))

    assert state["log"] == ["start", "n0", "n1", "n2"]
    assert graph.get_state(thread()).values == state


@everywhere
def test_a_fork_leaves_the_other_branch_as_it_was(saver: RopewalkSaver) -> None:
    graph = line_graph(saver)
    graph.invoke({"log": ["start"]}, thread())
    old = graph.get_state(thread())
    fork = graph.update_state(before(graph, "n2"), {"log": ["by hand"], "count": 70})
    state = graph.invoke(None, fork)

    assert state == {"log": ["start", "n0", "n1", "by hand", "n2"], "count": 71}
    assert graph.get_state(thread()).values == state
    assert told(graph.get_state(old.config)) == told(old)
    assert graph.get_state(old.config).values["log"] == ["start", "n0", "n1", "n2"]


def test_forks_of_forks_have_the_history_that_langgraph_gives_them(saver: RopewalkSaver) -> None:
    def travel(given: Any) -> list[Any]:
        graph = line_graph(given)
        graph.invoke({"log": ["start"]}, thread())
        for number, node in enumerate(("n1", "n2", "n0", "n2", "n1")):
            fork = graph.update_state(before(graph, node), {"log": [f"fork {number}"]})
            graph.invoke(None, fork)
        graph.invoke({"log": ["more"]}, thread())
        return history(graph, thread())

    assert travel(saver) == travel(InMemorySaver())


def test_every_old_checkpoint_of_every_branch_can_be_read(saver: RopewalkSaver) -> None:
    graph = line_graph(saver)
    graph.invoke({"log": ["start"]}, thread())
    for node in ("n0", "n1", "n2"):
        graph.invoke(None, graph.update_state(before(graph, node), {"log": [f"before {node}"]}))
    listed = list(graph.get_state_history(thread()))

    for one in listed:
        found = graph.get_state(one.config)
        assert told(found) == told(one) and found.parent_config == one.parent_config


def test_an_update_speaks_for_a_node(saver: RopewalkSaver) -> None:
    graph = line_graph(saver, 3, interrupt_before=["n1"])
    graph.invoke({"log": ["start"]}, thread())
    graph.update_state(thread(), {"log": ["instead"]}, as_node="n1")
    state = graph.invoke(None, thread())

    assert state["log"] == ["start", "n0", "instead", "n2"]


def test_many_updates_at_once(saver: RopewalkSaver) -> None:
    updates = [
        [StateUpdate({"log": ["first"]}, "n0")],
        [StateUpdate({"log": ["second"], "count": 5}, "n1")],
        [StateUpdate({"log": ["third"]}, "n0")],
    ]

    def update(given: Any) -> list[Any]:
        graph = line_graph(given)
        graph.bulk_update_state(thread(), updates)
        return history(graph, thread())

    assert update(saver) == update(InMemorySaver())
    assert update(RopewalkSaver())[0]["values"]["log"] == ["first", "second", "third"]


def test_a_thread_is_begun_by_an_update(saver: RopewalkSaver) -> None:
    graph = line_graph(saver)
    graph.update_state(thread(), {"log": ["by hand"]}, as_node="n1")
    state = graph.invoke(None, thread())

    assert state["log"] == ["by hand", "n2"]


def test_parallel_branches_are_played_again(saver: RopewalkSaver) -> None:
    def travel(given: Any) -> tuple[Any, list[Any]]:
        graph = fan_graph(given)
        graph.invoke({"items": [1, 2, 3]}, thread())
        fork = graph.update_state(before(graph, "gather"), {"found": ["by hand"]}, "work")
        return graph.invoke(None, fork), history(graph, thread())

    state, listed = travel(saver)

    assert (state, listed) == travel(InMemorySaver())
    assert state["found"][:4] == ["item 1", "item 2", "item 3", "by hand"]


def test_asynchronous_travel(saver: RopewalkSaver) -> None:
    graph = line_graph(saver)

    async def travel() -> tuple[Any, Any]:
        await graph.ainvoke({"log": ["start"]}, thread())
        async for one in graph.aget_state_history(thread()):
            if "n1" in one.next:
                break
        fork = await graph.aupdate_state(one.config, {"log": ["by hand"]})
        state = await graph.ainvoke(None, fork)
        return state, (await graph.aget_state(thread())).values

    state, kept = asyncio.run(travel())

    assert state["log"] == ["start", "n0", "by hand", "n1", "n2"] and kept == state


def test_history_is_filtered_and_limited(saver: RopewalkSaver) -> None:
    graph = line_graph(saver)
    for number in range(3):
        graph.invoke({"log": [f"run {number}"]}, thread(metadata={"number": number}))

    def found(**wanted: Any) -> list[int]:
        return [one.metadata["step"] for one in graph.get_state_history(thread(), **wanted)]

    assert found(filter={"number": 1}) == [8, 7, 6, 5, 4]
    assert found(filter={"number": 1, "source": "input"}) == [4]
    assert found(limit=2) == [13, 12]
    assert found(before=before(graph, "n0"), limit=3) == [9, 8, 7]
