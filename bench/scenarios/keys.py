"""One of 100,000 keys of a map changes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from statistics import median
from typing import Any

from bench._clock import Bounds, Stopwatch
from bench._model import PEAK, Engine, EngineInfo, Measured, Metric, Scenario, Target
from bench._text import Text
from bench._values import record
from bench.scenarios._sides import EVERY


def _change(
    engine: Engine, pairs: dict[str, Any], text: Text, size: Mapping[str, int]
) -> tuple[list[int], Stopwatch, str | None]:
    """Change one key at a time; see what each change stored."""
    bounds, watch, names = Bounds(size["seconds"]), Stopwatch(), list(pairs)
    grown: list[int] = []
    for number in range(size["changes"]):
        before, key = engine.stored_bytes(), text.random.choice(names)
        pairs[key] = record(text, size["keys"] + number)
        watch(partial(engine.put, key, pairs[key]))
        grown.append(engine.stored_bytes() - before)
        assert number % 10 or engine.get(key) == pairs[key], f"{key} did not read back"
        if cap := bounds.reached():
            return grown, watch, cap
    return grown, watch, None


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Load the keys, then change one at a time."""
    text, load = Text(5), Stopwatch()
    pairs = {f"key-{number:06}": record(text, number) for number in range(size["keys"])}
    engine = info.open()
    load(partial(engine.load, pairs))
    grown, watch, cap = _change(engine, pairs, text, size)
    figures = {
        "changes": len(grown),
        "worst_kb": max(grown) / 1e3,
        "kb": median(grown) / 1e3,
        "cpu_ms": median(watch.cpu) * 1e3,
        "load_s": load.cpu[0],
    }
    return Measured(figures, [f"stopped at {len(grown)} changes by {cap}"] if cap else [])


SCENARIO = Scenario(
    name="keys",
    title="One of 100,000 keys of a map changed",
    run=run,
    engines=EVERY,
    metrics=(
        Metric("changes", "changes", digits=0),
        Metric("worst_kb", "new bytes, worst change", "KB", 1),
        Metric("kb", "new bytes, median", "KB", 1),
        Metric("cpu_ms", "CPU per commit", "ms", 3),
        Metric("load_s", "CPU to load all keys", "s"),
        PEAK,
    ),
    size={"keys": 100_000, "changes": 60, "seconds": 20},
    quick={"keys": 10_000, "changes": 20, "seconds": 20},
    targets=(
        Target("worst_kb", 8.0, "new frames of the worst change"),
        Target("cpu_ms", 2.0, "CPU per commit"),
    ),
    notes=(
        "Holdfast, kvgit and agex are told the key that changed. The others have no keys: they "
        "are handed their whole dict.",
    ),
    order=50,
    repeat=3,
)
