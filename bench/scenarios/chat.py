"""A list of messages grows, with one commit for each."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from statistics import median
from typing import Any

from bench._clock import Bounds, Stopwatch
from bench._model import PEAK, Engine, EngineInfo, Measured, Metric, Scenario, Target
from bench._stats import growth
from bench._text import Text
from bench._values import message, payload_bytes
from bench.scenarios._sides import EVERY


def _grow(engine: Engine, size: Mapping[str, int]) -> tuple[list[Any], Stopwatch, str | None]:
    text, bounds, watch = Text(1), Bounds(size["seconds"]), Stopwatch()
    messages: list[Any] = []
    for number in range(size["messages"]):
        messages.append(message(text, number))
        watch(partial(engine.commit, messages))
        if cap := bounds.reached():
            return messages, watch, cap
    return messages, watch, None


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Grow the list, then check that it reads back."""
    engine = info.open()
    messages, watch, cap = _grow(engine, size)
    assert engine.read() == messages, "the list did not read back"
    stored, payload = engine.stored_bytes(), payload_bytes(messages)
    tail = max(1, len(messages) // 10)
    figures = {
        "messages": len(messages),
        "amplification": stored / payload,
        "stored_mb": stored / 1e6,
        "growth": growth(watch.cpu),
        "first_ms": median(watch.cpu[:tail]) * 1e3,
        "last_ms": median(watch.cpu[-tail:]) * 1e3,
        "commits_cpu": sum(watch.cpu),
    }
    notes = [f"stopped at {len(messages)} messages by {cap}"] if cap else []
    return Measured(figures, notes)


SCENARIO = Scenario(
    name="chat",
    title="A list grows to 2,000 messages of about 1 KB, one commit each, in memory",
    run=run,
    engines=EVERY,
    metrics=(
        Metric("messages", "messages", digits=0),
        Metric("amplification", "stored / payload", "x"),
        Metric("stored_mb", "stored", "MB", 1),
        Metric("growth", "growth per message already there", "us", 3),
        Metric("first_ms", "CPU per commit, first tenth", "ms", 3),
        Metric("last_ms", "CPU per commit, last tenth", "ms", 3),
        Metric("commits_cpu", "CPU of all commits", "s"),
        PEAK,
    ),
    size={"messages": 2000, "seconds": 60},
    quick={"messages": 300, "seconds": 20},
    targets=(
        Target("amplification", 1.5, "new frames over raw payload"),
        Target("growth", 1.0, "growth of CPU time per commit for each message already there"),
    ),
    notes=(
        "The payload is the messages once, as compact JSON. A side that stores the whole list "
        "at each step stores about half the number of messages times the payload.",
        "Growth is the least-squares slope over medians of 20 runs of steps.",
    ),
    order=10,
    repeat=3,
)
