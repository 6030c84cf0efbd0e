"""Graphs with delta channels, whose values are in the writes of many checkpoints."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import EmptyInputError, InvalidUpdateError
from langgraph.types import Command

from ropewalk.adapters.langgraph import RopewalkSaver, export_checkpoints, import_checkpoints
from ropewalk.errors import InvalidInput, NotFound
from tests.conftest import SOAK
from tests.frameworks.langgraph.conftest import Addresses
from tests.frameworks.langgraph.engines import ENGINES, saver_at
from tests.frameworks.langgraph.graphs import delta_graph, history, thread, twofold, twofold_graph

everywhere = pytest.mark.parametrize("engine", ENGINES)
TURNS = 7


def talk(graph: Any, config: Any = None, turns: int = TURNS, first: int = 0) -> None:
    for turn in range(first, first + turns):
        graph.invoke({"log": [f"turn {turn}"]}, config or thread(metadata={"run_id": f"r{turn}"}))


def expected(turns: int) -> list[str]:
    """What the log holds after some turns."""
    log: list[str] = []
    for turn in range(turns):
        for name in (f"turn {turn}", "first", "second"):
            log.append(f"{name} {len(log)}" if name in ("first", "second") else name)
    return log


@everywhere
def test_a_delta_channel_is_replayed(saver: RopewalkSaver) -> None:
    graph = delta_graph(saver)
    talk(graph)

    assert graph.get_state(thread()).values == {"log": expected(TURNS), "count": TURNS}


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_it_has_the_history_that_langgraph_gives_it(saver: RopewalkSaver, durability: Any) -> None:
    def run(given: Any) -> list[Any]:
        graph = delta_graph(given)
        for turn in range(4):
            graph.invoke({"log": [f"turn {turn}"]}, thread(), durability=durability)
        return history(graph, thread())

    assert run(saver) == run(InMemorySaver())


@pytest.mark.parametrize("engine", [one for one in ENGINES if one != "memory"])
def test_it_goes_on_in_another_object(engine: str, address_of: Addresses) -> None:
    address = address_of(engine)
    for turn in range(TURNS):
        with saver_at(engine, address) as saver:
            graph = delta_graph(saver)
            talk(graph, turns=1, first=turn)
            state = graph.get_state(thread()).values

    assert state["log"] == expected(TURNS)


@everywhere
def test_it_survives_prune(saver: RopewalkSaver) -> None:
    graph = delta_graph(saver)
    talk(graph)
    before = graph.get_state(thread())
    saver.prune(["t"])
    after = graph.get_state(thread())
    talk(graph, turns=2, first=TURNS)

    assert after.values == before.values and after.config == before.config
    assert len(list(saver.list(thread()))) < 3 * (TURNS + 2)
    assert graph.get_state(thread()).values["log"] == expected(TURNS + 2)


@pytest.mark.parametrize("keep", [1, 2, 5, 9, 100])
def test_all_that_prune_keeps_can_be_read(saver: RopewalkSaver, keep: int) -> None:
    graph = delta_graph(saver)
    talk(graph)
    before = list(graph.get_state_history(thread()))[:keep]
    saver.prune(["t"], keep_last=keep)
    after = list(graph.get_state_history(thread()))

    assert [one.config for one in after] == [one.config for one in before]
    assert [one.values for one in after] == [one.values for one in before]


@everywhere
def test_a_copy_has_all_of_it_and_goes_its_own_way(saver: RopewalkSaver) -> None:
    graph = delta_graph(saver)
    talk(graph)
    saver.copy_thread("t", "u")
    copied = history(graph, thread("u"))
    talk(graph, thread("u"), turns=1, first=TURNS)
    saver.delete_thread("t")

    assert len(copied) == 3 * TURNS + TURNS
    assert copied[0]["values"]["log"] == expected(TURNS)
    assert graph.get_state(thread("u")).values["log"] == expected(TURNS + 1)
    assert graph.get_state(thread()).values == {}


@pytest.mark.parametrize("gone", [["r6"], ["r5", "r6"], ["r4", "r5", "r6"]])
def test_without_its_last_runs_a_thread_is_as_before_them(
    saver: RopewalkSaver, gone: list[str]
) -> None:
    graph = delta_graph(saver)
    talk(graph)
    saver.delete_for_runs(gone)
    left = TURNS - len(gone)
    kept = graph.get_state(thread()).values["log"]
    talk(graph, turns=1, first=left)

    assert kept == expected(left)
    assert graph.get_state(thread()).values["log"] == expected(left + 1)


@pytest.mark.parametrize("gone", [["r0"], ["r2"], ["r3", "r4"], ["r0", "r1", "r2", "r3"]])
def test_the_values_of_later_runs_survive_without_earlier_ones(
    saver: RopewalkSaver, gone: list[str]
) -> None:
    graph = delta_graph(saver)
    talk(graph)
    before = {
        one.config["configurable"]["checkpoint_id"]: one.values
        for one in graph.get_state_history(thread())
        if one.metadata["run_id"] not in gone
    }
    saver.delete_for_runs(gone)
    after = {
        one.config["configurable"]["checkpoint_id"]: one.values
        for one in graph.get_state_history(thread())
    }

    assert after == before


def test_a_fork_replays_its_own_past(saver: RopewalkSaver) -> None:
    def travel(given: Any) -> list[Any]:
        graph = delta_graph(given)
        talk(graph, turns=3)
        for _ in range(4):
            old = list(graph.get_state_history(thread()))[5].config
            graph.invoke(None, graph.update_state(old, {"log": ["by hand"]}, as_node="first"))
        return history(graph, thread())

    assert travel(saver) == travel(InMemorySaver())


def test_asynchronous_deltas(saver: RopewalkSaver) -> None:
    graph = delta_graph(saver)

    async def converse() -> Any:
        for turn in range(TURNS):
            await graph.ainvoke({"log": [f"turn {turn}"]}, thread())
        await saver.aprune(["t"])
        return (await graph.aget_state(thread())).values

    assert asyncio.run(converse())["log"] == expected(TURNS)


# Anything that a program may do, in any order: a delta channel holds what a plain one holds.


NOTHING_TO_DO = (EmptyInputError, InvalidUpdateError, InvalidInput, NotFound, UserWarning)


class Walk:
    """Does something to threads again and again; each state is looked at after it."""

    def __init__(self, saver: RopewalkSaver, seed: int, *, asynchronous: bool) -> None:
        self.saver, self.random, self.threads = saver, random.Random(seed), ["t"]
        self.graph, self.asynchronous, self.number = (
            twofold_graph(saver, asks=True),
            asynchronous,
            0,
        )

    def step(self) -> None:
        """Do something."""
        self.number += 1
        config = thread(self.random.choice(self.threads))
        known = [one.config for one in self.graph.get_state_history(config)]
        at = self.random.choice(known) if known and self.random.random() < 0.5 else config
        runs = [self._run, self._run, self._update, self._fork]
        changes = [self._copy, self._prune, self._drop, self._back]
        call: Callable[..., None] = self.random.choice([*runs, *runs, *changes])
        with suppress(*NOTHING_TO_DO):
            call(at)

    def _call(self, name: str, *arguments: Any, **options: Any) -> None:
        if self.asynchronous:
            asyncio.run(getattr(self.graph, f"a{name}")(*arguments, **options))
        else:
            getattr(self.graph, name)(*arguments, **options)

    def _run(self, at: Any) -> None:
        given = [twofold(f"in {self.number}"), None, Command(resume=f"yes {self.number}")]
        config = {**at, "metadata": {"run_id": f"run {self.number}"}}
        durability = self.random.choice(["sync", "async", "exit"])
        self._call("invoke", self.random.choice(given), config, durability=durability)

    def _update(self, at: Any) -> None:
        node = self.random.choice(["first", "left", "last", "ask", None])
        self._call("update_state", at, twofold(f"by hand {self.number}"), as_node=node)

    def _fork(self, at: Any) -> None:
        self._call("update_state", at, None, as_node="__copy__")

    def _copy(self, at: Any) -> None:
        self.threads.append(f"copy {self.number}")
        self.saver.copy_thread(_thread_of(at), self.threads[-1])

    def _prune(self, at: Any) -> None:
        self.saver.prune([_thread_of(at)], keep_last=self.random.choice([1, 3, 8]))

    def _drop(self, at: Any) -> None:
        self.saver.delete_for_runs([f"run {self.random.randrange(self.number)}"])

    def _back(self, at: Any) -> None:
        timeline = self.saver.timeline(_thread_of(at))
        getattr(timeline, self.random.choice(["rollback", "undo", "redo"]))()

    def look(self) -> None:
        """Compare the channels of all states."""
        for name in self.threads:
            for one in self.graph.get_state_history(thread(name)):
                alone = self.graph.get_state(one.config).values
                for values in (one.values, alone):
                    assert values.get("log", []) == values.get("plain", []), one.metadata


def _thread_of(config: Any) -> str:
    return str(config["configurable"]["thread_id"])


def walk(saver: RopewalkSaver, seed: int, steps: int, *, asynchronous: bool) -> Walk:
    """Take a walk of some steps."""
    made = Walk(saver, seed, asynchronous=asynchronous)
    for _ in range(steps):
        made.step()
        made.look()
    return made


SEEDS = range(400 if SOAK else 2)


@pytest.mark.parametrize("family", ["sync", "async"])
@pytest.mark.parametrize("engine", ["memory", "sqlite", "postgres"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_delta_channel_holds_what_a_plain_one_holds(
    engine: str, family: str, seed: int, address_of: Addresses
) -> None:
    with saver_at(engine, address_of(engine)) as saver:
        walk(saver, seed, 12, asynchronous=family == "async")


def test_it_holds_that_in_a_database_of_langgraph_and_back(tmp_path: Any) -> None:
    with RopewalkSaver() as saver:
        graph = twofold_graph(saver)
        for turn in range(3):
            graph.invoke(twofold(f"turn {turn}"), thread())
        for one in list(graph.get_state_history(thread()))[2:8:2]:
            graph.invoke(twofold("other"), graph.update_state(one.config, None, "__copy__"))
        states = [one.values for one in graph.get_state_history(thread())]
        export_checkpoints(saver, tmp_path / "theirs.db")
    with RopewalkSaver() as saver:
        import_checkpoints(tmp_path / "theirs.db", saver)
        taken = [one.values for one in twofold_graph(saver).get_state_history(thread())]

    assert taken == states
    assert all(one.get("log", []) == one.get("plain", []) for one in taken)
