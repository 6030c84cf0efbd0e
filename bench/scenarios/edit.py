"""One field changes in the middle of a 10 MB nested value."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from statistics import median
from typing import Any

from bench._clock import Bounds, Stopwatch
from bench._model import PEAK, Engine, EngineInfo, Measured, Metric, Scenario, Target
from bench._text import Text
from bench._values import section
from bench.scenarios._sides import EVERY


def _change(text: Text, sections: list[Any], number: int) -> None:
    # Around the middle, each time in another part, in turn a text, a flag and a number.
    part = sections[len(sections) // 2 + number % 3 - 1]["parts"][number % 20]
    step = part["steps"][number % 10]
    if number % 3 == 0:
        step["note"] = text.prose(460)
    elif number % 3 == 1:
        step["done"] = not step["done"]
    else:
        part["rank"] += 1000


def _edit(
    engine: Engine, value: dict[str, Any], text: Text, size: Mapping[str, int]
) -> tuple[list[int], Stopwatch, str | None]:
    """Change one field at a time; see what each change stored."""
    bounds, watch = Bounds(size["seconds"]), Stopwatch()
    grown: list[int] = []
    for number in range(size["edits"]):
        before = engine.stored_bytes()
        _change(text, value["sections"], number)
        watch(partial(engine.commit, value))
        grown.append(engine.stored_bytes() - before)
        if cap := bounds.reached():
            return grown, watch, cap
    return grown, watch, None


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Make the value, edit it, and check that it reads back."""
    text, engine = Text(4), info.open()
    value = {"name": "work", "sections": [section(text, at) for at in range(size["sections"])]}
    engine.commit(value)
    grown, watch, cap = _edit(engine, value, text, size)
    assert engine.read() == value, "the value did not read back"
    figures = {
        "edits": len(grown),
        "worst_kb": max(grown) / 1e3,
        "kb": median(grown) / 1e3,
        "cpu_ms": median(watch.cpu) * 1e3,
    }
    return Measured(figures, [f"stopped at {len(grown)} edits by {cap}"] if cap else [])


SCENARIO = Scenario(
    name="edit",
    title="One field changed in the middle of a 10 MB nested value",
    run=run,
    engines=EVERY,
    metrics=(
        Metric("edits", "edits", digits=0),
        Metric("worst_kb", "new bytes, worst edit", "KB", 1),
        Metric("kb", "new bytes, median", "KB", 1),
        Metric("cpu_ms", "CPU per commit", "ms"),
        PEAK,
    ),
    size={"sections": 100, "edits": 30, "seconds": 20},
    quick={"sections": 20, "edits": 6, "seconds": 20},
    targets=(Target("worst_kb", 32.0, "new frames of the worst edit"),),
    notes=("A change is in turn a text of 460 characters, a flag or a number.",),
    order=40,
    repeat=3,
)
