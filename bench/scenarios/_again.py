"""The same large value is handed over again and again, with one counter changed."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from statistics import median
from typing import Any

from bench._clock import Bounds, Stopwatch
from bench._model import PEAK, Engine, Measured, Metric
from bench._values import payload_bytes
from bench.scenarios._work import Step, Work, take

METRICS = (
    Metric("commits", "commits", digits=0),
    Metric("cpu_ms", "CPU per commit", "ms"),
    Metric("fresh_ms", "CPU per commit, all objects new", "ms"),
    Metric("kb", "new bytes per commit", "KB", 1),
    Metric("caught", "in-place change caught", "yes/no"),
    Metric("first_ms", "CPU of the first commit", "ms", 1),
    PEAK,
)
NOTES = (
    "The value is plain Python, and no side is told what changed. In the first column the "
    "objects are those of the commit before; in the second every string and dict is a new "
    "object with equal content, as after a call to a model or a web service.",
)


class Again(Work):
    """The value, with its counter one higher at each step."""

    def __init__(self, value: dict[str, Any]) -> None:
        self.value = value

    def begin(self, engine: Engine) -> bool:
        engine.commit(self.value)
        return True

    def steps(self) -> Iterator[Step]:
        while True:
            self.value["counter"] += 1
            yield self._record

    def _record(self, engine: Engine) -> None:
        engine.change(self.value, ("counter",), self.value["counter"])

    def check(self, engine: Engine) -> None:
        assert engine.read() == self.value, "the value did not read back"

    def payload(self) -> int:
        return payload_bytes(self.value)


def hand_over_again(
    engine: Engine,
    value: dict[str, Any],
    change_inside: Callable[[Any], None],
    commits: int,
    seconds: int,
) -> Measured:
    """Commit, count up, commit again; then change one item in place and read it back."""
    bounds, first, same, fresh = Bounds(seconds), Stopwatch(), Stopwatch(), Stopwatch()
    work = Again(value)
    first(partial(work.begin, engine))
    before = engine.stored_bytes()
    cap = take(islice(work.steps(), commits), engine, same, bounds)
    stored = engine.stored_bytes() - before
    _count_up_fresh(engine, value, fresh, max(3, commits // 10))
    figures = {
        "commits": len(same.cpu),
        "cpu_ms": median(same.cpu) * 1e3,
        "fresh_ms": median(fresh.cpu) * 1e3,
        "kb": stored / len(same.cpu) / 1e3,
        "caught": _caught(engine, value, change_inside),
        "first_ms": first.cpu[0] * 1e3,
    }
    return Measured(figures, [f"stopped at {len(same.cpu)} commits by {cap}"] if cap else [])


def _count_up_fresh(engine: Engine, value: dict[str, Any], watch: Stopwatch, commits: int) -> None:
    for _ in range(commits):
        value["counter"] += 1
        copy = pickle.loads(pickle.dumps(value))
        watch(partial(engine.commit, copy))


def _caught(engine: Engine, value: Any, change_inside: Callable[[Any], None]) -> float:
    engine.commit(value)
    change_inside(value)
    engine.commit(value)
    return float(engine.read() == value)
