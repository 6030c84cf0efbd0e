"""Large documents beside small changes, and the same values again."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from statistics import median
from typing import Any

from bench._clock import Bounds, Stopwatch, cpu_seconds
from bench._model import PEAK, Engine, EngineInfo, Measured, Metric, Scenario, Target
from bench._text import Text, document, payload_bytes, record
from bench.scenarios._sides import EVERY, EVERY_ON_DISK, OURS, OURS_ON_DISK, PEERS
from bench.scenarios.values import (
    AMPLIFICATION,
    NOTES,
    RESTART,
    Step,
    Work,
    metrics,
    run_on_disk,
    take,
)

METRICS = (
    Metric("commits", "commits", digits=0),
    Metric("cpu_ms", "CPU per commit", "ms"),
    Metric("fresh_ms", "CPU per commit, all objects new", "ms"),
    Metric("kb", "new bytes per commit", "KB", 1),
    Metric("caught", "in-place change caught", "yes/no"),
    Metric("first_ms", "CPU of the first commit", "ms", 1),
    PEAK,
)
NOTES_AGAIN = (
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


def _change_inside_document(value: Any) -> None:
    found = value["documents"]
    found[len(found) // 2]["meta"]["tags"].append("changed in place")


def documents(count: int) -> dict[str, Any]:
    """A counter beside so many documents of 10 KB."""
    text = Text(2)
    return {"counter": 0, "documents": [document(text, number) for number in range(count)]}


def run_document(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Make the documents and hand them over again and again."""
    value = documents(size["documents"])
    return hand_over_again(
        info.open(), value, _change_inside_document, size["commits"], size["seconds"]
    )


def run_document_disk(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Make the documents and hand them over again and again."""
    return run_on_disk(info, Again(documents(size["documents"])), size["commits"], size)


def _change_inside_records(value: Any) -> None:
    records = value["records"]
    records[len(records) // 2]["tags"].append("changed in place")


def run_records(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Make the records and hand them over again and again."""
    text = Text(3)
    records = [record(text, number) for number in range(size["records"])]
    value = {"counter": 0, "records": records}
    return hand_over_again(
        info.open(), value, _change_inside_records, size["commits"], size["seconds"]
    )


def _child_ms(code: str) -> float:
    before = cpu_seconds()
    subprocess.run([sys.executable, "-c", code], check=True)
    return (cpu_seconds() - before) * 1e3


def run_import(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Start interpreters in turn, with the import and without."""
    code = f"import {info.imports}"
    _child_ms(code)  # writes the bytecode
    pairs = [(_child_ms("pass"), _child_ms(code)) for _ in range(size["starts"])]
    bare, full = (median(times) for times in zip(*pairs, strict=True))
    return Measured({"added_ms": full - bare, "bare_ms": bare})


SCENARIOS = (
    Scenario(
        name="document",
        title="A 5 MB list of 500 documents of 10 KB, handed over again with one counter changed",
        run=run_document,
        engines=EVERY,
        metrics=METRICS,
        size={"documents": 500, "commits": 60, "seconds": 30},
        quick={"documents": 500, "commits": 10, "seconds": 20},
        targets=(
            Target("cpu_ms", 5.0, "CPU per commit"),
            Target(
                "caught", 1.0, "a change made in place inside one document is caught", "at least"
            ),
        ),
        notes=NOTES_AGAIN,
        order=20,
    ),
    Scenario(
        name="document-disk",
        title="A 5 MB list of documents and a counter, committed durably again with the counter "
        "changed",
        run=run_document_disk,
        engines=EVERY_ON_DISK,
        metrics=metrics(AMPLIFICATION, RESTART),
        size={"documents": 500, "commits": 200, "worst": 10, "seconds": 60},
        quick={"documents": 100, "commits": 10, "worst": 3, "seconds": 20},
        targets=(
            Target("amplification", 1.1, "folder after close over raw payload", side=OURS_ON_DISK),
        ),
        notes=NOTES,
        order=120,
        repeat=3,
    ),
    Scenario(
        name="records",
        title="The same 5 MB as 60,000 small dicts, handed over again with one counter changed",
        run=run_records,
        engines=EVERY,
        metrics=METRICS,
        size={"records": 60_000, "commits": 50, "seconds": 15},
        quick={"records": 60_000, "commits": 5, "seconds": 20},
        targets=(
            Target("cpu_ms", 40.0, "CPU per commit"),
            Target("caught", 1.0, "a change made in place inside one dict is caught", "at least"),
        ),
        notes=NOTES_AGAIN,
        order=30,
        repeat=3,
    ),
    Scenario(
        name="import",
        title="Import over a bare interpreter",
        run=run_import,
        engines=(OURS, *PEERS),
        metrics=(
            Metric("added_ms", "CPU added by the import", "ms", 1),
            Metric("bare_ms", "CPU of the bare interpreter", "ms", 1),
        ),
        size={"starts": 15},
        quick={"starts": 5},
        targets=(Target("added_ms", 60.0, "CPU added by `import ropewalk`"),),
        order=70,
        repeat=3,
    ),
)
