"""Two runs at once on one thread: one wins, is told, or goes its own way, but nothing is lost."""

from __future__ import annotations

import asyncio
import operator
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

from ropewalk.adapters.langgraph import RopewalkSaver, export_checkpoints
from ropewalk.errors import InvalidInput, ThreadConflict
from tests.frameworks.langgraph.conftest import Addresses
from tests.frameworks.langgraph.engines import ENGINES, saver_at
from tests.frameworks.langgraph.graphs import thread

everywhere = pytest.mark.parametrize("engine", ENGINES)


class Race(TypedDict):
    log: Annotated[list[str], operator.add]


def racing_graph(saver: Any, meanwhile: Callable[[], None]) -> Any:
    """Two nodes; while the first one of a run called "slow" runs, something else happens."""

    def first(state: Race) -> dict[str, Any]:
        if state["log"][-1] == "slow":
            other = threading.Thread(target=meanwhile)
            other.start()
            other.join()
        return {"log": ["first"]}

    def second(state: Race) -> dict[str, Any]:
        return {"log": ["second"]}

    builder = StateGraph(Race)
    builder.add_node("first", first)
    builder.add_node("second", second)
    builder.add_edge(START, "first")
    builder.add_edge("first", "second")
    return builder.compile(checkpointer=saver)


def race(saver: Any, durability: Any = "sync") -> Any:
    """A graph on whose thread a quick run begins and ends while a slow one is under way."""

    def quick() -> None:
        while _log(saver)[-1] != "slow":  # Until what the slow run began with is stored.
            time.sleep(0.001)
        graph.invoke({"log": ["quick"]}, thread(), durability=durability)

    graph = racing_graph(saver, quick)
    graph.invoke({"log": ["begin"]}, thread())
    return graph


def _log(saver: Any) -> list[str]:
    return saver.get_tuple(thread()).checkpoint["channel_values"].get("log") or [""]


@everywhere
def test_by_default_the_last_one_is_the_newest_and_the_other_can_be_read(
    engine: str, address_of: Addresses
) -> None:
    with saver_at(engine, address_of(engine)) as saver:
        graph = race(saver)
        state = graph.invoke({"log": ["slow"]}, thread(), durability="sync")
        logs = [one.values["log"] for one in graph.get_state_history(thread())]

        assert state["log"] == ["begin", "first", "second", "slow", "first", "second"]
        assert graph.get_state(thread()).values == state
        assert any(log[-3:] == ["quick", "first", "second"] for log in logs)


@everywhere
@pytest.mark.parametrize("durability", ["sync", "async"])
def test_a_run_that_was_overtaken_is_told(
    engine: str, durability: str, address_of: Addresses
) -> None:
    with saver_at(engine, address_of(engine), on_conflict="raise") as saver:
        graph = race(saver, durability)
        with pytest.raises(ThreadConflict, match="another run"):
            graph.invoke({"log": ["slow"]}, thread(), durability=durability)
        kept = graph.get_state(thread())
        again = graph.invoke({"log": ["calm"]}, thread(), durability=durability)

        assert kept.values["log"][-3:] == ["quick", "first", "second"] and kept.next == ()
        assert again["log"][-6:] == ["quick", "first", "second", "calm", "first", "second"]


@everywhere
@pytest.mark.parametrize("durability", ["sync", "async"])
def test_a_run_that_was_overtaken_is_kept_aside(
    engine: str, durability: str, address_of: Addresses
) -> None:
    with saver_at(engine, address_of(engine), on_conflict="branch") as saver:
        graph = race(saver, durability)
        state = graph.invoke({"log": ["slow"]}, thread(), durability=durability)
        head = graph.get_state(thread())
        logs = [one.values["log"] for one in graph.get_state_history(thread())]
        again = graph.invoke({"log": ["calm"]}, thread(), durability=durability)

        assert state["log"][-3:] == ["slow", "first", "second"]
        assert head.values["log"][-3:] == ["quick", "first", "second"]
        assert state["log"] in logs
        assert again["log"] == [*head.values["log"], "calm", "first", "second"]


def test_what_is_aside_is_the_newest_for_nobody(tmp_path: Path) -> None:
    with RopewalkSaver(on_conflict="branch") as saver:
        graph = race(saver)
        graph.invoke({"log": ["slow"]}, thread())
        head = graph.get_state(thread())
        exported = export_checkpoints(saver, tmp_path / "theirs.db")
        with SqliteSaver.from_conn_string(str(tmp_path / "theirs.db")) as theirs:
            given = racing_graph(theirs, lambda: None).get_state(thread()).values
        saver.prune(["t"])

        assert head.values["log"][-3] == "quick" and exported.left_counts["aside"] > 0
        assert given == head.values
        assert [one.values for one in graph.get_state_history(thread())] == [head.values]


@pytest.mark.parametrize("on_conflict", ["raise", "branch"])
def test_a_fork_that_was_asked_for_is_no_conflict(on_conflict: Any) -> None:
    with RopewalkSaver(on_conflict=on_conflict) as saver:
        graph = race(saver)
        graph.invoke({"log": ["more"]}, thread())
        old = next(one for one in graph.get_state_history(thread()) if one.next == ("second",))
        played = graph.invoke(None, old.config)
        fork = graph.update_state(old.config, {"log": ["by hand"]})
        state = graph.invoke(None, fork)

        assert played["log"][-1] == "second"
        assert state["log"][-2:] == ["by hand", "second"]
        assert graph.get_state(thread()).values == state


@pytest.mark.parametrize("on_conflict", ["raise", "branch"])
def test_turns_one_after_another_are_no_conflict(on_conflict: Any) -> None:
    with RopewalkSaver(on_conflict=on_conflict) as saver:
        graph = race(saver)
        for number in range(5):
            state = graph.invoke({"log": [f"turn {number}"]}, thread())
            graph.update_state(thread(), {"log": ["by hand"]})

        assert len(state["log"]) == 3 + 5 * 3 + 4
        assert len(graph.get_state(thread()).values["log"]) == 3 + 5 * 4


def test_ten_asynchronous_runs_that_try_again_lose_no_turn() -> None:
    async def talk() -> list[str]:
        with RopewalkSaver(on_conflict="raise") as saver:
            graph = racing_graph(saver, lambda: None)

            async def insist(number: int) -> None:
                while True:
                    try:
                        await graph.ainvoke({"log": [f"turn {number}"]}, thread())
                        return
                    except ThreadConflict:
                        await asyncio.sleep(0)

            await asyncio.gather(*map(insist, range(6)))
            log: list[str] = (await graph.aget_state(thread())).values["log"]
            return log

    log = asyncio.run(talk())

    assert {f"turn {number}" for number in range(6)} <= set(log)


def test_another_word_for_conflicts_is_refused() -> None:
    with pytest.raises(InvalidInput, match="on_conflict"):
        RopewalkSaver(on_conflict="merge")  # type: ignore[arg-type]
