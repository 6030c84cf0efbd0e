"""Agents add to one counter at once: is everything that was acknowledged there at the end?"""

from __future__ import annotations

import time
from collections.abc import Mapping
from threading import Barrier, Thread

from bench._clock import Bounds
from bench._model import EngineInfo, Measured, Metric, Scenario, Target
from bench.engines.artifacts import Shared, shared
from bench.scenarios._sides import OUR_SHARED, PEERS_SHARED, SHARED_MEMORY

AGENTS = (4, 8)
_COUNTER = "counter"
_PATIENCE = 300.0


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """4 agents, then 8, each a thread."""
    figures: dict[str, float] = {}
    for agents in AGENTS:
        side = shared(info.open())
        side.store.put(side.namespace("agent-0"), _COUNTER, {"count": 0})
        adders = [_Adder(side, f"agent-{number}", size) for number in range(agents)]
        began = time.perf_counter()
        _together(adders)
        took = time.perf_counter() - began
        stored = side.store.get(side.namespace("looks"), _COUNTER).value["count"]
        acknowledged = sum(adder.acknowledged for adder in adders)
        figures |= {
            f"acknowledged_{agents}": acknowledged,
            f"lost_{agents}": acknowledged - stored,
            f"errors_{agents}": sum(adder.errors for adder in adders),
            f"rate_{agents}": stored / took,
        }
        side.close()
    return Measured(figures)


class _Adder(Thread):
    """One agent, which adds one again and again."""

    def __init__(self, side: Shared, agent: str, size: Mapping[str, int]) -> None:
        super().__init__(name=agent)
        self._side, self._agent, self._size = side, agent, size
        self.barrier: Barrier | None = None
        self.acknowledged = self.errors = 0

    def run(self) -> None:
        """Count what was acknowledged, and what was refused."""
        assert self.barrier is not None
        self.barrier.wait(_PATIENCE)
        bounds = Bounds(self._size["seconds"])
        for _ in range(self._size["adds"]):
            try:
                self._side.add_one(self._agent, _COUNTER)
            except Exception:
                self.errors += 1
            else:
                self.acknowledged += 1
            if bounds.reached():
                return


def _together(adders: list[_Adder]) -> None:
    barrier = Barrier(len(adders))
    for adder in adders:
        adder.barrier = barrier
        adder.start()
    for adder in adders:
        adder.join()


SCENARIO = Scenario(
    name="coherence-contended",
    title="4 and 8 agents, threads of one process, add to one counter",
    run=run,
    engines=(*OUR_SHARED, SHARED_MEMORY, *PEERS_SHARED),
    metrics=tuple(
        metric
        for agents in AGENTS
        for metric in (
            Metric(f"acknowledged_{agents}", f"acknowledged, {agents} agents", digits=0),
            Metric(f"lost_{agents}", f"of them lost, {agents}", digits=0),
            Metric(f"errors_{agents}", f"errors, {agents}", digits=0),
            Metric(f"rate_{agents}", f"kept, {agents}", "1/s", 0),
        )
    ),
    size={"adds": 500, "seconds": 60},
    quick={"adds": 50, "seconds": 20},
    targets=tuple(
        Target(f"lost_{agents}", 0.0, f"acknowledged and lost, {agents} agents", side=side)
        for agents in AGENTS
        for side in OUR_SHARED
    ),
    notes=(
        "Ours add with edit: read, change, compare-and-swap, and again if somebody else was "
        "faster. The others have only get and put, so they read, add and put back.",
    ),
    order=640,
    repeat=3,
)
