"""An agent saves ten thousand steps of a small state."""

from __future__ import annotations

from collections.abc import Mapping

from bench._model import EngineInfo, Measured, Scenario, Target
from bench.scenarios._commits import Small
from bench.scenarios._sides import EVERY_STEPS, PEERS_STEPS, STEPS_ON_DISK
from bench.scenarios._timeline import METRICS, NOTES, run_steps


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Save the steps and look back."""
    return run_steps(info, Small(1), size["checkpoints"], size)


def _at_once(metric: str, text: str) -> Target:
    return Target(metric, 100.0, text, side=STEPS_ON_DISK)


SCENARIO = Scenario(
    name="timeline-small",
    title="10,000 checkpoints of a state of about 600 bytes, of which a number changes",
    run=run,
    engines=EVERY_STEPS,
    metrics=METRICS,
    size={"checkpoints": 10_000, "seconds": 120},
    quick={"checkpoints": 300, "seconds": 20},
    targets=(
        Target(
            "commits_cpu",
            1.0,
            "CPU of the peer over ours",
            "at least",
            side=STEPS_ON_DISK,
            under=PEERS_STEPS,
        ),
        Target(
            "folder_mb",
            1.0,
            "bytes of the peer over ours",
            "at least",
            side=STEPS_ON_DISK,
            under=PEERS_STEPS,
        ),
        _at_once("history_ms", "history(limit=50) in a timeline just opened, wall"),
        _at_once("tree_ms", "visualize_tree() in a timeline just opened, wall"),
    ),
    notes=NOTES,
    order=180,
    repeat=3,
)
