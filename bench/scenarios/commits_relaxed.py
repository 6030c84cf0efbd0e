"""Small commits that may lose the last moments in a power loss, by one process and by eight."""

from __future__ import annotations

from collections.abc import Mapping

from bench._model import EngineInfo, Measured, Scenario, Target
from bench.scenarios import _commits as commits
from bench.scenarios._sides import OURS_ON_DISK


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Commit without waiting for the disk, where a side can."""
    return commits.run(info, size, "relaxed")


def _rate(metric: str, text: str) -> Target:
    what = f"commits per second over kvgit's, {text}"
    return Target(metric, 2.0, what, "at least", side=OURS_ON_DISK, over=("kvgit-disk",))


SCENARIO = Scenario(
    name="commits-relaxed",
    title="Small commits of one changed field, of which a power loss may take the last",
    run=run,
    engines=commits.SIDES,
    metrics=commits.METRICS,
    size={"commits": 1000, "seconds": 20, "processes": 8, "together_seconds": 3},
    quick={"commits": 100, "seconds": 10, "processes": 2, "together_seconds": 1},
    targets=(
        _rate("rate", "1 process"),
        _rate("rate_together", "8 processes"),
        Target("kept", 1.0, "every last commit is there", "at least", side=OURS_ON_DISK),
    ),
    notes=commits.NOTES,
    order=170,
    repeat=3,
)
