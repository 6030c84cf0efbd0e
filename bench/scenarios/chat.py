"""A list of messages grows, with one commit for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from statistics import median
from typing import Any

from bench._clock import Bounds, Stopwatch
from bench._model import PEAK, Engine, EngineInfo, Measured, Metric, Scenario, Target
from bench._stats import growth
from bench._text import Text
from bench._values import message, payload_bytes
from bench.scenarios._sides import EVERY
from bench.scenarios._work import Step, Work, take


class Chat(Work):
    """A list of messages that grows by one at each step."""

    def __init__(self) -> None:
        self._text = Text(1)
        self.messages: list[Any] = []

    def steps(self) -> Iterator[Step]:
        while True:
            self.messages.append(message(self._text, len(self.messages)))
            yield self._record

    def _record(self, engine: Engine) -> None:
        engine.change(self.messages, (len(self.messages) - 1,), self.messages[-1])

    def check(self, engine: Engine) -> None:
        assert engine.read() == self.messages, "the list did not read back"

    def payload(self) -> int:
        return payload_bytes(self.messages)


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Grow the list, then check that it reads back."""
    engine, work, watch = info.open(), Chat(), Stopwatch()
    steps = islice(work.steps(), size["messages"])
    cap = take(steps, engine, watch, Bounds(size["seconds"]))
    work.check(engine)
    messages = work.messages
    stored, payload = engine.stored_bytes(), work.payload()
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
