"""What a process that commits to a large state holds beside that state."""

from __future__ import annotations

from collections.abc import Mapping
from tempfile import TemporaryDirectory

from bench._apart import elsewhere
from bench._model import EngineInfo, Measured, Metric, Scenario, Target
from bench.scenarios._sides import STEPS_ON_DISK


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """The same work with a timeline and without, each in a fresh process."""
    from bench._large import take

    told = size["megabytes"], size["steps"]
    alone = elsewhere(take, None, *told)
    with TemporaryDirectory() as folder:
        ours = elsewhere(take, folder, *told)
    encoded = alone["encoded_mb"]
    return Measured(
        {
            "times": (ours["peak_mb"] - alone["peak_mb"]) / encoded,
            "held_times": (ours["held_mb"] - alone["held_mb"]) / encoded,
            "with_mb": ours["peak_mb"],
            "alone_mb": alone["peak_mb"],
            "encoded_mb": encoded,
        }
    )


SCENARIO = Scenario(
    name="steps-memory",
    title="Commits of 1 MB into a state of 200 MB",
    run=run,
    engines=(STEPS_ON_DISK,),
    metrics=(
        Metric("times", "peak memory above that without / encoded state", "x"),
        Metric("held_times", "memory at the end, the same", "x"),
        Metric("with_mb", "peak memory of the process", "MB", 0),
        Metric("alone_mb", "without a timeline", "MB", 0),
        Metric("encoded_mb", "encoded state", "MB", 0),
    ),
    size={"megabytes": 200, "steps": 50},
    quick={"megabytes": 20, "steps": 5},
    targets=(
        Target("times", 1.5, "peak memory above that of who only holds it", side=STEPS_ON_DISK),
    ),
    notes=(
        "A list of documents of 1,000 messages of 1 KB grows by one at each commit until it has "
        "200 MB; then 50 commits replace one each. The same is done without a timeline, in a "
        "process of its own, and its peak is what is subtracted. Encoded is compact JSON.",
    ),
    order=26,
    repeat=1,
    timeout=1200,
    environment="python-3.12",
)
