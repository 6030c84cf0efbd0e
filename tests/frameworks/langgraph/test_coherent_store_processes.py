"""Agents in several processes, on one store: nothing stale, nothing lost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.conftest import SOAK
from tests.frameworks.langgraph.coherent_worker import PATIENT, opened
from tests.frameworks.turn import ROOT

PROCESSES = 4
TIMES = 60 if SOAK else 8
STRATEGIES = ["lazy", "eager", "lease", "access_count", "broadcast"]


class Worker:
    """Another process, whose agent is told what to do."""

    def __init__(
        self, place: str, agent: str, strategy: str, tick_seconds: float = PATIENT
    ) -> None:
        module = "tests.frameworks.langgraph.coherent_worker"
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, place, agent, strategy, str(TIMES), str(tick_seconds)],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def ask(self, line: str) -> Any:
        self.say(line)
        return self.hear()

    def end(self) -> int:
        self.process.communicate()
        return self.process.returncode


Start: TypeAlias = Callable[..., Worker]


@pytest.fixture(params=["sqlite", "postgres", "redis", "ttl"])
def place(request: pytest.FixtureRequest, memory_folder: Path) -> str:
    """Where artifacts are that processes share; after `ttl:` their items may end."""
    match request.param:
        case "sqlite":
            return str(memory_folder / "store")
        case "postgres":
            return str(request.getfixturevalue("postgres_url"))
        case "ttl":
            return f"ttl:{memory_folder / 'store'}"
        case _:
            return f"{request.getfixturevalue('redis_url')}?durability=relaxed"


@pytest.fixture
def start(place: str) -> Iterator[Start]:
    """Starts processes, which end with the test."""
    started: list[Worker] = []

    def begin(agent: str, strategy: str = "lazy") -> Worker:
        started.append(Worker(place, agent, strategy))
        return started[-1]

    yield begin
    codes = [worker.end() for worker in started]

    assert codes == [0] * len(started)


def test_processes_that_count_in_one_item_lose_nothing(place: str, start: Start) -> None:
    workers = [start(f"agent-{n}", STRATEGIES[n]) for n in range(PROCESSES)]
    assert [worker.hear() for worker in workers] == ["ready"] * PROCESSES
    for worker in workers:
        worker.say("count")
    assert [worker.hear() for worker in workers] == ["done"] * PROCESSES
    with opened(place) as store:
        found: Any = store.get(("reader", "shared"), "n")
        listed = store.search(("reader", "shared"))

    assert (found.value, found.version) == ({"n": PROCESSES * TIMES}, PROCESSES * TIMES)
    assert [one.key for one in listed] == ["n"]


def test_a_read_is_never_older_than_a_write_that_was_acknowledged(place: str, start: Start) -> None:
    writer = start("writer")
    seen = []
    with opened(place, "lazy") as lazy, opened(place, "eager") as eager:
        assert writer.hear() == "ready"
        for number in range(10):
            assert writer.ask(f'put plan {{"step": {number}}}') == "done"
            for store in (lazy, eager):
                found: Any = store.get(("reader", "shared"), "plan")
                seen.append((found.version, found.value["step"]))

        assert seen == [(n + 1, n) for n in range(10) for _ in range(2)]
        assert writer.end() == 0
        last: Any = lazy.get(("reader", "shared"), "plan")
        assert last.version == 10, "an item outlives its process"
