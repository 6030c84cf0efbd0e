"""One small durable commit beside a bare insert: at its quickest, and at its latest."""

from __future__ import annotations

from collections.abc import Mapping

from bench._model import EngineInfo, Measured, Metric, Scenario, Target
from bench.scenarios import _commits as commits
from bench.scenarios._sides import FILES, OURS_ON_DISK


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Commit in turns with the bare transaction."""
    return commits.in_turns(info, {**size, "commits": size["steps"]}, "full")


SCENARIO = Scenario(
    name="steps-commit",
    title="One small durable commit: a number changes in a state of 600 bytes",
    run=run,
    engines=(OURS_ON_DISK, FILES),
    metrics=(
        Metric("quiet_over_bare", "quiet tenth, wall / bare insert", "x"),
        Metric("cpu_over_bare", "mean CPU / bare insert", "x"),
        Metric("late", "99th percentile / median, wall", "x"),
        Metric("late_bare", "the bare insert's", "x"),
        Metric("median_ms", "median wall per commit", "ms", 3),
        Metric("wall_ms", "mean wall per commit", "ms", 3),
        Metric("cpu_ms", "mean CPU per commit", "ms", 3),
        Metric("commits", "commits", digits=0),
    ),
    size={"steps": 4000, "seconds": 120},
    quick={"steps": 300, "seconds": 20},
    targets=(
        Target("quiet_over_bare", 1.8, "quiet tenth over the bare insert", side=OURS_ON_DISK),
        Target("late", 5.0, "99th percentile over the median", side=OURS_ON_DISK),
    ),
    notes=(
        "Blocks of 25 commits take turns with blocks of a transaction that inserts the changed "
        "number and its path, in one process and on one disk. The quiet tenth is the time below "
        "which a tenth of the commits are: what the machine does besides is not in it.",
    ),
    order=22,
    repeat=3,
    environment="python-3.12",
)
