"""A list in a state grows by one message at a time, each with a commit."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from bench._model import EngineInfo, Measured, Metric, Scenario
from bench._text import Text
from bench._values import payload_bytes, short_message
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

TENTHS = (
    Metric("first_ms", "CPU per round, first tenth", "ms", 3),
    Metric("last_ms", "CPU per round, last tenth", "ms", 3),
)
AT_THE_END = (
    "The object is assigned again when the list is long, so it compares with the last tenth."
)


class Appends(Changing):
    """A list that begins empty; each step appends a message."""

    def __init__(self) -> None:
        self._text = Text(7)
        self.value: list[Any] = []

    def next_change(self) -> Change:
        message = short_message(self._text, len(self.value))
        return lambda messages: messages.append(dict(message))

    def payload(self) -> int:
        return payload_bytes(self.value)


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Append the messages."""
    work = Appends()
    more = partial(work.assigned, size["assigned"])
    return run_in_memory(info, work, size["appends"], size, more)


SCENARIO = Scenario(
    name="state-append",
    title="1,000 messages of about 570 bytes appended to a list in a state, a commit after each",
    run=run,
    engines=EVERY_HELD,
    metrics=metrics(*TENTHS, ASSIGNED, on_disk=False),
    size={"appends": 1_000, "assigned": 50, "seconds": 60},
    quick={"appends": 100, "assigned": 5, "seconds": 20},
    targets=(
        bytes_target(HELD),
        *targets("commits_cpu", "CPU of the best peer over ours", 1.0, on_disk=False),
        *targets("assigned_ms", f"the same, {OWN_OBJECT}", 1.0, on_disk=False),
    ),
    notes=(*NOTES, AT_THE_END),
    order=230,
    repeat=3,
)
