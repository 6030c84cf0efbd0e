"""1,000 agents in several processes, on one engine."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench._clock import own_peak_bytes
from bench._model import EngineInfo, Measured, Metric, Place, Scenario
from bench._registry import engines
from bench._servers import Server, running
from bench.engines.artifacts import Shared, shared
from bench.scenarios import _agents as agents
from bench.scenarios._agents import METRICS, Agent, Done, as_threads
from bench.scenarios._sides import OUR_SHARED_SERVED

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
        agents.prepare(side, size)
        found, took, served = _together(info, place, size, server)
        done = Done()
        for answer in found:
            done += answer.done
        figures = done.figures(agents.counted(side, size))
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


SCENARIO = Scenario(
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
        "agents": 1000, "processes": 4, "artifacts": 100, "operations": 20, "edits_percent": 20,
        "seconds": 60,
    },
    quick={
        "agents": 40, "processes": 2, "artifacts": 10, "operations": 10, "edits_percent": 20,
        "seconds": 30,
    },
    targets=agents.targets(OUR_SHARED_SERVED),
    notes=(
        "4 processes with 250 agents each, which are threads; each process has one client. Lost is "
        "what was acknowledged in any process and is not in the counters at the end. So many "
        "agents at once need more connections to Redis than the 32 of a store's default.",
    ),
    order=622,
    repeat=1,
)  # fmt: skip
