"""Graphs whose process is killed, and which go on in another."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from ropewalk.adapters.langgraph import RopewalkSaver
from tests.conftest import SOAK
from tests.frameworks.langgraph.conftest import Addresses
from tests.frameworks.langgraph.engines import saver_at
from tests.frameworks.langgraph.graphs import thread
from tests.frameworks.langgraph.worker import round_graph, start
from tests.postgres import running_postgres
from tests.store.redis.servers import KEEPS_ALL, configured

KILLS = 40 if SOAK else 3
PATIENCE = 120.0
ENDLESS = 1_000_000


def step_of(line: str) -> int:
    """The step in which a node runs: a round has two of them."""
    name, number = line.split()
    return 2 * int(number) + (2 if name == "close" else 1)


def kill_in_a_round(
    chance: random.Random, engine: str, address: str, runs: Path, durability: str
) -> None:
    """Run in another process, and kill it at some moment after some nodes more."""
    goal = len(lines_of(runs)) + chance.randint(1, 40)
    process = start("round", engine, address, runs, ENDLESS, durability)
    until = time.monotonic() + PATIENCE
    while len(lines_of(runs)) < goal:
        assert process.poll() is None, process.communicate()[1].decode()
        assert time.monotonic() < until
        time.sleep(0.002)
    time.sleep(chance.random() * 0.02)  # Anywhere in a step.
    process.kill()
    process.communicate()


def lines_of(runs: Path) -> list[str]:
    return runs.read_text().splitlines()


def finished_tasks(saver: RopewalkSaver, graph: Any) -> tuple[int, set[str]]:
    """The step that comes next, and the nodes of it whose writes are stored."""
    state = graph.get_state(thread())
    found = saver.get_tuple(thread())
    assert found is not None
    stored = {task for task, _, _ in found.pending_writes or []}
    return state.metadata["step"] + 1, {one.name for one in state.tasks if one.id in stored}


def check_that_writes_came_first(saver: RopewalkSaver) -> None:
    """Whatever checkpoint another one follows has the writes of all tasks that led to that."""
    newest, *older = saver.list(thread())
    for one in older:
        step = one.metadata["step"]
        tasks = {task for task, _, _ in one.pending_writes or []}
        # The input, the start, then in turn two nodes and one.
        wanted = 1 if step < 0 or step % 2 else 2
        assert len(tasks) == wanted, (step, newest.metadata["step"])


class Acknowledged:
    """What a killed graph was told, and whether it is there."""

    def __init__(self, engine: str, address: str, runs: Path) -> None:
        self._engine, self._address, self._runs = engine, address, runs
        self.step, self._finished, self._known = 0, set[str](), 0
        runs.touch()

    def check(self) -> None:
        """Nothing that was acknowledged is gone, and nothing is done again that was stored."""
        lines = lines_of(self._runs)
        with saver_at(self._engine, self._address) as saver:
            again = {f"{name} {(self.step - 1) // 2}" for name in self._finished}
            assert not again & {*lines[self._known :]}

            graph = round_graph(saver, self._runs, ENDLESS)
            self.step, self._finished = finished_tasks(saver, graph)
            self._known = len(lines)
            check_that_writes_came_first(saver)

            # A node runs only when the checkpoint before its step is stored.
            assert self.step >= max(map(step_of, lines))

    def check_the_end(self) -> None:
        """The graph goes on, and every node counted once."""
        with saver_at(self._engine, self._address) as saver:
            check_the_end(saver, self._runs)


@pytest.mark.parametrize("engine", ["sqlite", "files", "postgres", "redis"])
def test_what_sync_acknowledged_is_there_after_a_kill(
    engine: str, address_of: Addresses, tmp_path: Path
) -> None:
    chance = random.Random(engine)
    address, runs = address_of(engine), tmp_path / "runs"
    told = Acknowledged(engine, address, runs)
    for _ in range(KILLS):
        kill_in_a_round(chance, engine, address, runs, "sync")
        told.check()
    told.check_the_end()


class Killable(Protocol):
    """A server that is killed, and goes on with what is on its disk."""

    def kill(self) -> None: ...

    def start(self) -> None: ...


@contextmanager
def server_of(engine: str) -> Iterator[tuple[Killable, str]]:
    """A server of its own that confirms what it is told, and the address of a store in it."""
    if engine == "redis":
        with configured(KEEPS_ALL) as server:
            yield server, server.url
    else:
        with running_postgres() as other:
            yield other, other.new_database()


@pytest.mark.parametrize("engine", ["postgres", "redis"])
def test_what_sync_acknowledged_is_there_after_kills_of_the_server_and_of_clients(
    engine: str, tmp_path: Path
) -> None:
    chance, runs = random.Random("both"), tmp_path / "runs"
    with server_of(engine) as (server, address):
        told = Acknowledged(engine, address, runs)
        for _ in range(KILLS):
            stopping = threading.Event()
            killer = threading.Thread(target=kill_again_and_again, args=(server, runs, stopping))
            killer.start()
            try:
                kill_in_a_round(chance, engine, address, runs, "sync")
            finally:
                stopping.set()
                killer.join()
            told.check()
        told.check_the_end()
    assert told.step >= (300 if SOAK else 20)


def kill_again_and_again(server: Killable, runs: Path, stopping: threading.Event) -> None:
    """Kill a server at moments by chance, and start it again, as long as a client works."""
    chance, begun = random.Random(), len(lines_of(runs))
    while len(lines_of(runs)) == begun:  # Who opens a store does not wait for its server.
        if stopping.wait(0.01):
            return
    while not stopping.wait(0.5 + chance.random()):
        server.kill()
        server.start()


def check_the_end(saver: RopewalkSaver, runs: Path) -> None:
    """Go on for a round or two, and see that every node counted once."""
    found = saver.get_tuple(thread())
    number = 0 if found is None else found.checkpoint["channel_values"].get("number", 0)
    graph = round_graph(saver, runs, number + 2)
    state = graph.invoke(None if found else {"number": 0, "log": []}, thread())

    assert state["log"] == [
        f"{name} {one}" for one in range(number + 2) for name in ("left", "right", "close")
    ]


@pytest.mark.parametrize("durability", ["async", "exit"])
def test_a_killed_graph_goes_on_from_something_whole(
    durability: str, address_of: Addresses, tmp_path: Path
) -> None:
    chance = random.Random(durability)
    address, runs = address_of("sqlite"), tmp_path / "runs"
    runs.touch()
    for _ in range(KILLS):
        kill_in_a_round(chance, "sqlite", address, runs, durability)
        with saver_at("sqlite", address) as saver:
            if durability == "async" and saver.get_tuple(thread()):
                check_that_writes_came_first(saver)
            assert durability == "async" or saver.get_tuple(thread()) is None
    with saver_at("sqlite", address) as saver:
        check_the_end(saver, runs)
