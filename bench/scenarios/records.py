"""60,000 small dicts and a counter, handed over again with the counter changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench._model import EngineInfo, Measured, Scenario, Target
from bench._text import Text
from bench._values import record
from bench.scenarios._again import METRICS, NOTES, hand_over_again
from bench.scenarios._sides import EVERY


def _change_inside(value: Any) -> None:
    records = value["records"]
    records[len(records) // 2]["tags"].append("changed in place")


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Make the records and hand them over again and again."""
    text = Text(3)
    records = [record(text, number) for number in range(size["records"])]
    value = {"counter": 0, "records": records}
    return hand_over_again(info.open(), value, _change_inside, size["commits"], size["seconds"])


SCENARIO = Scenario(
    name="records",
    title="The same 5 MB as 60,000 small dicts, handed over again with one counter changed",
    run=run,
    engines=EVERY,
    metrics=METRICS,
    size={"records": 60_000, "commits": 50, "seconds": 15},
    quick={"records": 60_000, "commits": 5, "seconds": 20},
    targets=(
        Target("cpu_ms", 40.0, "CPU per commit"),
        Target("caught", 1.0, "a change made in place inside one dict is caught", "at least"),
    ),
    notes=NOTES,
    order=30,
    repeat=3,
)
