"""1,000 agents in one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial

from bench._clock import own_peak_bytes, resident_bytes
from bench._model import EngineInfo, Measured, Scenario
from bench.engines.artifacts import shared
from bench.scenarios import _agents as agents
from bench.scenarios._agents import Agent, Done
from bench.scenarios._sides import OUR_SHARED, PEERS_SHARED, SHARED_MEMORY

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
        metrics=agents.METRICS,
        size=_SIZE,
        quick=_QUICK,
        targets=agents.targets(OUR_SHARED),
        notes=_NOTES,
        order=order,
        repeat=3,
    )


def _run(work: Work, info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """All agents at once."""
    side = shared(info.open())
    agents.prepare(side, size)
    all_agents = [Agent(side, number, size) for number in range(size["agents"])]
    memory, wall, cpu = resident_bytes(), time.perf_counter(), time.process_time()
    done = work(all_agents)
    took, used = time.perf_counter() - wall, time.process_time() - cpu
    figures = done.figures(agents.counted(side, size))
    figures |= {
        "rate": figures["completed"] / took,
        "cpu_us": used / max(figures["completed"], 1) * 1e6,
        "more_mb": (own_peak_bytes() - memory) / 1e6,
    }
    side.close()
    notes = [f"the last error was {done.last_error}"] if done.errors else []
    return Measured(figures, notes)
