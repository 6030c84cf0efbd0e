"""Small durable commits, by one process and by eight."""

from __future__ import annotations

from collections.abc import Mapping

from bench._model import EngineInfo, Measured, Scenario, Target
from bench.scenarios import _commits as commits
from bench.scenarios._sides import OURS_ON_DISK


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Commit so that a power loss takes nothing."""
    return commits.run(info, size, "full")


SCENARIO = Scenario(
    name="commits-durable",
    title="Small commits of one changed field, each safe from a power loss",
    run=run,
    engines=commits.SIDES,
    metrics=commits.METRICS,
    size={"commits": 1000, "seconds": 20, "processes": 8, "together_seconds": 3},
    quick={"commits": 100, "seconds": 10, "processes": 2, "together_seconds": 1},
    targets=(
        Target(
            "wall_over_bare", 1.5, "wall per commit over the bare transaction", side=OURS_ON_DISK
        ),
        Target("kept", 1.0, "every last commit is there", "at least", side=OURS_ON_DISK),
    ),
    notes=commits.NOTES,
    order=160,
    repeat=3,
)
