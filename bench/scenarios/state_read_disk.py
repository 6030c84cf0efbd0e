"""A 10 MB value in a state on disk is read and not changed, beside a number that is set."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from bench._model import EngineInfo, Measured, Scenario
from bench.scenarios._held import (
    DISK_NOTES,
    NOTES,
    bytes_target,
    metrics,
    run_in_folder,
    targets,
)
from bench.scenarios._sides import EVERY_HELD_ON_DISK, HELD_ON_DISK
from bench.scenarios.state_read import MORE, UNCHANGED, Reads, caught, looking


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Make the state and read it."""
    work = Reads(size["records"])
    return run_in_folder(info, work, size["rounds"], size, partial(work.more, size["reopened"]))


SCENARIO = Scenario(
    name="state-read-disk",
    title="A 10 MB list of 112,000 small dicts in a state on disk read but not changed, beside a "
    "number that is set",
    run=run,
    engines=EVERY_HELD_ON_DISK,
    metrics=metrics(*MORE, on_disk=True),
    size={"records": 112_000, "rounds": 20, "reopened": 5, "worst": 1, "seconds": 60},
    quick={"records": 12_000, "rounds": 5, "reopened": 2, "worst": 1, "seconds": 20},
    targets=(
        bytes_target(HELD_ON_DISK),
        caught(HELD_ON_DISK),
        looking(HELD_ON_DISK, "agex-state-disk"),
        *targets("commits_cpu", "CPU of the best peer over ours", 1.0, on_disk=True),
        *targets("reopened_ms", "the same, a new handle each round", 1.0, on_disk=True),
    ),
    notes=(*NOTES, *DISK_NOTES, *UNCHANGED),
    order=205,
    repeat=3,
)
