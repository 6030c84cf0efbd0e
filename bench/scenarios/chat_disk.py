"""A list of messages grows on disk, with one commit for each."""

from __future__ import annotations

from collections.abc import Mapping

from bench._model import EngineInfo, Measured, Scenario, Target
from bench.scenarios._on_disk import AMPLIFICATION, NOTES, metrics, run_on_disk
from bench.scenarios._sides import EVERY_ON_DISK, OURS_ON_DISK, PEERS_ON_DISK, PICKLE_ON_DISK
from bench.scenarios.chat import Chat


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Grow the list."""
    return run_on_disk(info, Chat(), size["messages"], size)


SCENARIO = Scenario(
    name="chat-disk",
    title="A list grows to 2,000 messages of about 1 KB, one durable commit each",
    run=run,
    engines=EVERY_ON_DISK,
    metrics=metrics(AMPLIFICATION),
    size={"messages": 2000, "worst": 10, "seconds": 60},
    quick={"messages": 200, "worst": 3, "seconds": 20},
    targets=(
        Target("amplification", 2.0, "folder after close over raw payload", side=OURS_ON_DISK),
        Target(
            "commits_cpu",
            5.0,
            "CPU of pickle-into-SQLite over ours",
            "at least",
            side=OURS_ON_DISK,
            under=(PICKLE_ON_DISK,),
        ),
        Target(
            "commits_cpu",
            2.0,
            "CPU of the best peer over ours",
            "at least",
            side=OURS_ON_DISK,
            under=PEERS_ON_DISK,
        ),
    ),
    notes=(
        *NOTES,
        "A side that stopped early is compared at the last twentieth of the messages that it "
        "reached.",
    ),
    order=110,
    repeat=3,
)
