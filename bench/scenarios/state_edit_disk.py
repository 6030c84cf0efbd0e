"""One field of a 10 MB value in a state on disk is changed in place, and committed."""

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
from bench.scenarios.state_edit import Edits


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Make the list and edit it."""
    work = Edits(size["records"])
    return run_in_folder(info, work, size["edits"], size, partial(work.assigned, size["assigned"]))


SCENARIO = Scenario(
    name="state-edit-disk",
    title="One field changed in a 10 MB list of 112,000 small dicts in a state on disk",
    run=run,
    engines=EVERY_HELD_ON_DISK,
    metrics=metrics(ASSIGNED, on_disk=True),
    size={"records": 112_000, "edits": 30, "assigned": 10, "worst": 1, "seconds": 60},
    quick={"records": 12_000, "edits": 6, "assigned": 3, "worst": 1, "seconds": 20},
    targets=(
        bytes_target(HELD_ON_DISK),
        *targets("commits_cpu", "CPU of the best peer over ours", 10.0, on_disk=True),
        *targets("assigned_ms", f"the same, {OWN_OBJECT}", 1.0, on_disk=True),
    ),
    notes=(*NOTES, *DISK_NOTES),
    order=220,
    repeat=3,
)
