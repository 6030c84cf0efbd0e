"""One field of a 10 MB value in a state is changed in place, and committed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from bench._model import EngineInfo, Measured, Scenario
from bench._text import Text
from bench._values import payload_bytes, record
from bench.scenarios._held import (
    ASSIGNED,
    NOTES,
    OWN_OBJECT,
    Change,
    Changing,
    bytes_target,
    metrics,
    run_in_memory,
    targets,
)
from bench.scenarios._sides import EVERY_HELD, HELD


class Edits(Changing):
    """A list of so many small dicts; each step changes a field of one."""

    def __init__(self, records: int) -> None:
        self._text = Text(6)
        self.value = [record(self._text, number) for number in range(records)]

    def next_change(self) -> Change:
        at = self._text.random.randrange(len(self.value))
        return partial(_set_score, at, round(self._text.random.random() * 100, 3))

    def payload(self) -> int:
        return payload_bytes(self.value)


def _set_score(at: int, score: float, records: Any) -> None:
    records[at]["score"] = score


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Make the list and edit it."""
    work = Edits(size["records"])
    return run_in_memory(info, work, size["edits"], size, partial(work.assigned, size["assigned"]))


SCENARIO = Scenario(
    name="state-edit",
    title="One field changed in a 10 MB list of 112,000 small dicts in a state",
    run=run,
    engines=EVERY_HELD,
    metrics=metrics(ASSIGNED, on_disk=False),
    size={"records": 112_000, "edits": 30, "assigned": 10, "seconds": 60},
    quick={"records": 12_000, "edits": 6, "assigned": 3, "seconds": 20},
    targets=(
        bytes_target(HELD),
        *targets("commits_cpu", "CPU of the best peer over ours", 1.0, on_disk=False),
        *targets("assigned_ms", f"the same, {OWN_OBJECT}", 1.0, on_disk=False),
    ),
    notes=NOTES,
    order=210,
    repeat=3,
)
