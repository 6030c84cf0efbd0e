"""One field changes in the middle of a 10 MB nested value on disk."""

from __future__ import annotations

from collections.abc import Mapping

from bench._model import EngineInfo, Measured, Scenario, Target
from bench.scenarios._on_disk import NOTES, RESTART, metrics, run_on_disk
from bench.scenarios._sides import (
    EVERY_ON_DISK,
    OURS_ON_DISK,
    PEERS_ON_DISK,
    TOLD_ON_DISK,
)
from bench.scenarios.edit import Edit


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Make the value and edit it."""
    return run_on_disk(info, Edit(size["sections"]), size["edits"], size)


def _bytes(side: str, text: str) -> tuple[Target, ...]:
    return (
        Target("kb", 48.0, f"new bytes per commit{text}", side=side),
        Target("worst_kb", 48.0, f"new bytes of the worst commit{text}", side=side),
    )


def _cpu(side: str, text: str) -> Target:
    what = f"CPU per commit of the best peer over ours{text}"
    return Target("cpu_ms", 10.0, what, "at least", side=side, under=PEERS_ON_DISK)


SCENARIO = Scenario(
    name="edit-disk",
    title="One field changed in the middle of a 10 MB nested value, committed durably",
    run=run,
    engines=(OURS_ON_DISK, TOLD_ON_DISK, *EVERY_ON_DISK[1:]),
    metrics=metrics(RESTART),
    size={"sections": 100, "edits": 100, "worst": 10, "seconds": 60},
    quick={"sections": 20, "edits": 6, "worst": 3, "seconds": 20},
    targets=(
        *_bytes(OURS_ON_DISK, ""),
        *_bytes(TOLD_ON_DISK, ", told the path"),
        _cpu(OURS_ON_DISK, ", the whole value handed over"),
        _cpu(TOLD_ON_DISK, ", told the path"),
    ),
    notes=(
        *NOTES,
        "A change is in turn a text of 460 characters, a flag or a number. Ropewalk is shown "
        "twice: handed the whole value without being told what changed, as every peer is; and "
        "told the path, for which the peers have no way.",
    ),
    order=140,
    repeat=3,
)
