"""Agents that work on shared artifacts: threads, tasks, processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

from bench._clock import own_peak_bytes, resident_bytes
from bench._model import EngineInfo, Measured, Metric, Place, Scenario, Target
from bench._registry import engines
from bench._servers import Server, running
from bench._text import Text
from bench.engines.artifacts import Shared, shared
from bench.scenarios._sides import OUR_SHARED, OUR_SHARED_SERVED, PEERS_SHARED, SHARED_MEMORY

METRICS = (
    Metric("completed", "operations", digits=0),
    Metric("edits", "of them edits", digits=0),
    Metric("lost", "edits lost", digits=0),
    Metric("errors", "errors", digits=0),
    Metric("again", "edits that had to try again", "%", 1),
    Metric("rate", "operations", "1/s", 0),
    Metric("cpu_us", "CPU per operation", "us", 0),
    Metric("more_mb", "memory for all of it", "MB", 1),
)


def targets(sides: Sequence[str]) -> tuple[Target, ...]:
    """No side loses an edit or raises."""
    return tuple(
        Target(metric, 0.0, f"{what} ({side[7:]})", side=side)
        for side in sides
        for metric, what in (("lost", "edits lost"), ("errors", "errors"))
    )


@dataclass
class Done:
    """What some agents did."""

    reads: int = 0
    edits: int = 0
    tries: int = 0
    errors: int = 0
    last_error: str = ""
    waits: list[float] = field(default_factory=list)
    """How long the edits took."""

    def __iadd__(self, other: Done) -> Done:
        self.reads += other.reads
        self.edits += other.edits
        self.tries += other.tries
        self.errors += other.errors
        self.last_error = other.last_error or self.last_error
        self.waits += other.waits
        return self

    def figures(self, counted: int) -> dict[str, float]:
        """What they say, beside what all counters hold together."""
        return {
            "completed": self.reads + self.edits,
            "edits": self.edits,
            "lost": self.edits - counted,
            "errors": self.errors,
            "again": (self.tries - self.edits) / max(self.edits, 1) * 100,
        }


def artifacts(count: int) -> list[str]:
    """The keys of the artifacts."""
    return [f"artifact-{number}" for number in range(count)]


def prepare(side: Shared, size: Mapping[str, int]) -> None:
    """Put the artifacts, about 1 KB each, with a counter."""
    text = Text(1)
    for key in artifacts(size["artifacts"]):
        side.store.put(side.namespace("first"), key, {"count": 0, "text": text.prose(950)})


def counted(side: Shared, size: Mapping[str, int]) -> int:
    """What all counters hold together."""
    where = side.namespace("looks")
    keys = artifacts(size["artifacts"])
    return sum(side.store.get(where, key).value["count"] for key in keys)


class Agent:
    """One agent, whose choices follow from its number."""

    def __init__(self, side: Shared, number: int, size: Mapping[str, int]) -> None:
        self._side, self._name, self._size = side, f"agent-{number}", size
        self._random, self._where = Random(number), side.namespace(f"agent-{number}")
        self.done = Done()

    def run(self) -> None:
        """Do everything, one after the other."""
        ends = time.monotonic() + self._size["seconds"]
        for key, edits in self._plan():
            try:
                if edits:
                    self._note(self._side.add_one(self._name, key))
                else:
                    self._look(self._side.store.get(self._where, key).value)
            except Exception as error:
                self._failed(error)
            if time.monotonic() > ends:
                return

    async def run_awaited(self) -> None:
        """The same as a task."""
        ends = time.monotonic() + self._size["seconds"]
        for key, edits in self._plan():
            try:
                if edits:
                    self._note(await self._side.await_add_one(self._name, key))
                else:
                    self._look((await self._side.store.aget(self._where, key)).value)
            except Exception as error:
                self._failed(error)
            if time.monotonic() > ends:
                return
            await asyncio.sleep(0)

    def _plan(self) -> list[tuple[str, bool]]:
        keys, share = artifacts(self._size["artifacts"]), self._size["edits_percent"]
        draw = self._random
        return [
            (draw.choice(keys), draw.random() * 100 < share)
            for _ in range(self._size["operations"])
        ]

    def _note(self, tries: int) -> None:
        self.done.edits += 1
        self.done.tries += tries

    def _look(self, value: dict[str, object]) -> None:
        assert "count" in value
        self.done.reads += 1

    def _failed(self, error: Exception) -> None:
        self.done.errors += 1
        self.done.last_error = repr(error)[:120]


def as_threads(agents: list[Agent]) -> Done:
    """Run each in a thread."""
    threads = [Thread(target=agent.run) for agent in agents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return together(agents)


def as_tasks(agents: list[Agent]) -> Done:
    """Run each as a task of one event loop."""

    async def whole() -> None:
        await asyncio.gather(*(agent.run_awaited() for agent in agents))

    asyncio.run(whole())
    return together(agents)


def together(agents: list[Agent]) -> Done:
    """What all of them did."""
    done = Done()
    for agent in agents:
        done += agent.done
    return done


Work = Callable[[list[Agent]], Done]

_SIZE = {"agents": 1000, "artifacts": 100, "operations": 40, "edits_percent": 20, "seconds": 20}
_QUICK = {"agents": 50, "artifacts": 10, "operations": 10, "edits_percent": 20, "seconds": 20}
_NOTES = (
    "Each agent does so many operations on artifacts by chance, of about 1 KB each; of 100 "
    "operations 20 are edits, which add one to a counter. Lost is what was acknowledged and is "
    "not in the counters at the end.",
)


def scenario(name: str, kind: str, work: Work, *, order: int) -> Scenario:
    """All agents in one process, as threads or as tasks."""
    return Scenario(
        name=name,
        title=f"1,000 agents, {kind} of one process, read and edit 100 artifacts",
        run=partial(_run, work),
        engines=(*OUR_SHARED, SHARED_MEMORY, PEERS_SHARED[0]),
        metrics=METRICS,
        size=_SIZE,
        quick=_QUICK,
        targets=targets(OUR_SHARED),
        notes=_NOTES,
        order=order,
        repeat=3,
    )


def _run(work: Work, info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """All agents at once."""
    side = shared(info.open())
    prepare(side, size)
    all_agents = [Agent(side, number, size) for number in range(size["agents"])]
    memory, wall, cpu = resident_bytes(), time.perf_counter(), time.process_time()
    done = work(all_agents)
    took, used = time.perf_counter() - wall, time.process_time() - cpu
    figures = done.figures(counted(side, size))
    figures |= {
        "rate": figures["completed"] / took,
        "cpu_us": used / max(figures["completed"], 1) * 1e6,
        "more_mb": (own_peak_bytes() - memory) / 1e6,
    }
    side.close()
    notes = [f"the last error was {done.last_error}"] if done.errors else []
    return Measured(figures, notes)


_PATIENCE = 300.0


@dataclass
class _Answer:
    """What the agents of one process did."""

    done: Done = field(default_factory=Done)
    cpu: float = 0.0
    peak: int = 0
    failure: str = ""


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Start the engine and the processes; all agents at once."""
    with TemporaryDirectory() as name, running(info.server, Path(name)) as server:
        place = Place(Path(name), url=server.url)
        side = shared(info.open(place))
        prepare(side, size)
        found, took, served = _together(info, place, size, server)
        done = Done()
        for answer in found:
            done += answer.done
        figures = done.figures(counted(side, size))
        side.close()
    completed = max(figures["completed"], 1)
    figures |= {
        "rate": completed / took,
        "cpu_us": sum(answer.cpu for answer in found) / completed * 1e6,
        "more_mb": max(answer.peak for answer in found) / 1e6,
    }
    if server.serves:
        figures["server_us"] = served / completed * 1e6
    notes = [f"the last error was {done.last_error}"] if done.errors else []
    return Measured(figures, notes)


def _together(
    info: EngineInfo, place: Place, size: Mapping[str, int], server: Server
) -> tuple[list[_Answer], float, float]:
    context = get_context("spawn")
    count = size["processes"]
    barrier, answers = context.Barrier(count + 1), context.Queue()
    workers = [
        context.Process(target=_worker, args=(info.name, place, number, size, barrier, answers))
        for number in range(count)
    ]
    for worker in workers:
        worker.start()
    barrier.wait(_PATIENCE)
    began, served = time.perf_counter(), server.cpu_seconds()
    found: list[_Answer] = [answers.get(timeout=_PATIENCE) for _ in workers]
    took, served = time.perf_counter() - began, server.cpu_seconds() - served
    for worker in workers:
        worker.join(_PATIENCE)
    failures = [one.failure for one in found if one.failure]
    assert not failures, failures[0]
    return found, took, served


def _worker(
    name: str,
    place: Place,
    number: int,
    size: Mapping[str, int],
    barrier: Barrier,
    answers: Queue[Any],
) -> None:
    try:
        answers.put(_work(shared(engines()[name].open(place)), number, size, barrier))
    except BaseException as failure:
        barrier.abort()
        answers.put(_Answer(failure=f"process {number}: {failure!r}"))


def _work(side: Shared, number: int, size: Mapping[str, int], barrier: Barrier) -> _Answer:
    each = size["agents"] // size["processes"]
    mine = [Agent(side, number * each + at, size) for at in range(each)]
    barrier.wait(_PATIENCE)
    cpu = time.process_time()
    done = as_threads(mine)
    used = time.process_time() - cpu
    side.close()
    return _Answer(done, used, own_peak_bytes())


SCENARIOS = (
    scenario("coherence-agents-tasks", "tasks", as_tasks, order=621),
    scenario("coherence-agents-threads", "threads", as_threads, order=620),
    Scenario(
        name="coherence-agents-apart",
        title="1,000 agents in several processes read and edit 100 artifacts on one engine",
        run=run,
        engines=OUR_SHARED_SERVED,
        metrics=(
            *METRICS[:-1],
            Metric("server_us", "CPU of the server per operation", "us", 0),
            Metric("more_mb", "peak memory of one process", "MB", 0),
        ),
        size={
            "agents": 1000,
            "processes": 4,
            "artifacts": 100,
            "operations": 20,
            "edits_percent": 20,
            "seconds": 60,
        },
        quick={
            "agents": 40,
            "processes": 2,
            "artifacts": 10,
            "operations": 10,
            "edits_percent": 20,
            "seconds": 30,
        },
        targets=targets(OUR_SHARED_SERVED),
        notes=(
            "4 processes with 250 agents each, which are threads; each process has one client. "
            "Lost is what was acknowledged in any process and is not in the counters at the end. "
            "So many agents at once need more connections to Redis than the 32 of a store's "
            "default.",
        ),
        order=622,
        repeat=1,
    ),
)
