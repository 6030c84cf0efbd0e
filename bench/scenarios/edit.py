"""One field changes in the middle of a 10 MB nested value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import count, islice, pairwise
from statistics import median
from typing import Any

from bench._clock import Bounds, Stopwatch
from bench._model import PEAK, Engine, EngineInfo, Measured, Metric, Scenario, Target
from bench._text import Text
from bench._values import payload_bytes, section
from bench.scenarios._sides import EVERY
from bench.scenarios._work import Step, Work, take


class Edit(Work):
    """A nested value of so many sections of 100 KB; each step changes one field."""

    def __init__(self, sections: int) -> None:
        self._text = Text(4)
        found = [section(self._text, at) for at in range(sections)]
        self.value: dict[str, Any] = {"name": "work", "sections": found}

    def begin(self, engine: Engine) -> bool:
        engine.commit(self.value)
        return True

    def steps(self) -> Iterator[Step]:
        for number in count():
            path, new = self._field(number)
            part: Any = self.value
            for step in path[:-1]:
                part = part[step]
            part[path[-1]] = new
            yield partial(self._record, path, new)

    def _record(self, path: tuple[str | int, ...], new: Any, engine: Engine) -> None:
        engine.change(self.value, path, new)

    def check(self, engine: Engine) -> None:
        assert engine.read() == self.value, "the value did not read back"

    def payload(self) -> int:
        return payload_bytes(self.value)

    def _field(self, number: int) -> tuple[tuple[str | int, ...], Any]:
        # Around the middle, each time in another part, in turn a text, a flag and a number.
        middle = len(self.value["sections"]) // 2 + number % 3 - 1
        path = ("sections", middle, "parts", number % 20)
        part = self.value["sections"][middle]["parts"][number % 20]
        step = (*path, "steps", number % 10)
        if number % 3 == 0:
            return (*step, "note"), self._text.prose(460)
        if number % 3 == 1:
            return (*step, "done"), not part["steps"][number % 10]["done"]
        return (*path, "rank"), part["rank"] + 1000


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Make the value, edit it, and check that it reads back."""
    engine, work, watch = info.open(), Edit(size["sections"]), Stopwatch()
    work.begin(engine)
    stored = [engine.stored_bytes()]
    cap = take(
        islice(work.steps(), size["edits"]),
        engine,
        watch,
        Bounds(size["seconds"]),
        after=lambda: stored.append(engine.stored_bytes()),
    )
    work.check(engine)
    grown = [after - before for before, after in pairwise(stored)]
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
