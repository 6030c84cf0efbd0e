"""500 documents of 10 KB and a counter, handed over again with the counter changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench._model import EngineInfo, Measured, Scenario, Target
from bench._text import Text
from bench._values import document
from bench.scenarios._again import METRICS, NOTES, hand_over_again
from bench.scenarios._sides import EVERY


def _change_inside(value: Any) -> None:
    found = value["documents"]
    found[len(found) // 2]["meta"]["tags"].append("changed in place")


def documents(count: int) -> dict[str, Any]:
    """A counter beside so many documents of 10 KB."""
    text = Text(2)
    return {"counter": 0, "documents": [document(text, number) for number in range(count)]}


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Make the documents and hand them over again and again."""
    value = documents(size["documents"])
    return hand_over_again(info.open(), value, _change_inside, size["commits"], size["seconds"])


SCENARIO = Scenario(
    name="document",
    title="A 5 MB list of 500 documents of 10 KB, handed over again with one counter changed",
    run=run,
    engines=EVERY,
    metrics=METRICS,
    size={"documents": 500, "commits": 60, "seconds": 30},
    quick={"documents": 500, "commits": 10, "seconds": 20},
    targets=(
        Target("cpu_ms", 5.0, "CPU per commit"),
        Target("caught", 1.0, "a change made in place inside one document is caught", "at least"),
    ),
    notes=NOTES,
    order=20,
)
