"""A list in a state on disk grows by one message at a time, each with a commit."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from bench._model import EngineInfo, Measured, Scenario
from bench.scenarios._held import (
    ASSIGNED,
    DISK_NOTES,
    NOTES,
    OWN_OBJECT,
    bytes_target,
    metrics,
    run_in_folder,
    targets,
)
from bench.scenarios._sides import EVERY_HELD_ON_DISK, HELD_ON_DISK
from bench.scenarios.state_append import AT_THE_END, TENTHS, Appends


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Append the messages."""
    work = Appends()
    more = partial(work.assigned, size["assigned"])
    return run_in_folder(info, work, size["appends"], size, more)


SCENARIO = Scenario(
    name="state-append-disk",
    title="1,000 messages of about 570 bytes appended to a list in a state on disk, a commit "
    "after each",
    run=run,
    engines=EVERY_HELD_ON_DISK,
    metrics=metrics(*TENTHS, ASSIGNED, on_disk=True),
    size={"appends": 1_000, "assigned": 50, "worst": 3, "seconds": 60},
    quick={"appends": 100, "assigned": 5, "worst": 1, "seconds": 20},
    targets=(
        bytes_target(HELD_ON_DISK),
        *targets("commits_cpu", "CPU of the best peer over ours", 10.0, on_disk=True),
        *targets("assigned_ms", f"the same, {OWN_OBJECT}", 1.0, on_disk=True),
    ),
    notes=(*NOTES, *DISK_NOTES, AT_THE_END),
    order=240,
    repeat=3,
)
