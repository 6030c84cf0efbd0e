"""A 10 MB value in a state is read and not changed, beside a number that is set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import count, islice
from statistics import median
from typing import Any

from bench._clock import Stopwatch
from bench._model import Engine, EngineInfo, Measured, Metric, Scenario, Target
from bench._text import Text
from bench._values import payload_bytes, record
from bench.engines.states import SMALL, VALUE, held
from bench.scenarios._held import NOTES, Reopened, bytes_target, metrics, run_in_memory, targets
from bench.scenarios._sides import EVERY_HELD, HELD
from bench.scenarios._work import Step, Work

MORE = (
    Metric("reopened_ms", "CPU per round, a new handle each", "ms", 3),
    Metric("caught", "in-place change caught", "yes/no"),
)
UNCHANGED = (
    "With a new handle for each round, which is what a program does that starts again for each "
    "step, a round opens the state, reads the value, sets the number, commits and closes.",
    "Only Ropewalk and agex look whether the value was changed. kvgit and AgentRef never do: a "
    "change in place of which they are not told is lost, as the column says. AgentRef keeps the "
    "loaded object, so that its rounds with one handle do nothing but write a line, in which "
    "nothing can be below it; the target is judged beside agex, and beside all three.",
)


class Reads(Work):
    """A list of so many small dicts, and a number that goes up."""

    def __init__(self, records: int) -> None:
        self._text = Text(6)
        self.records = [record(self._text, number) for number in range(records)]
        self.number = 0

    def begin(self, engine: Engine) -> bool:
        state = held(engine)
        state.set(VALUE, self.records)
        state.set(SMALL, self.number)
        state.save()
        return True

    def steps(self) -> Iterator[Step]:
        for number in count(1):
            self.number = number
            at = self._text.random.randrange(len(self.records))
            yield partial(self._round, at, number)

    def _round(self, at: int, number: int, engine: Engine) -> None:
        state = held(engine)
        assert state.look(VALUE)[at]["id"] == at, "the wrong record was read"
        state.set(SMALL, number)
        state.save()

    def check(self, engine: Engine) -> None:
        state = held(engine)
        assert state.look(VALUE) == self.records, "the value did not read back"
        assert state.look(SMALL) == self.number, "the number did not read back"

    def payload(self) -> int:
        return payload_bytes(self.records)

    def more(self, rounds: int, reopened: Reopened) -> Mapping[str, float]:
        """Rounds with a new handle each, and whether a change in place is caught."""
        watch = Stopwatch()
        for step in islice(self.steps(), rounds):
            watch(partial(_open_and_close, reopened, step))
        return {"reopened_ms": median(watch.cpu) * 1e3, "caught": self._caught(reopened)}

    def _caught(self, reopened: Reopened) -> float:
        at, new = len(self.records) // 2, "changed in place"
        state = reopened()
        state.look(VALUE)[at]["name"] = new
        state.save()
        state.close()
        state = reopened()
        found: Any = state.look(VALUE)[at]["name"]
        state.close()
        if found == new:
            self.records[at]["name"] = new
        return float(found == new)


def _open_and_close(reopened: Reopened, step: Step) -> None:
    state = reopened()
    step(state)
    state.close()


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Make the state and read it."""
    work = Reads(size["records"])
    return run_in_memory(info, work, size["rounds"], size, partial(work.more, size["reopened"]))


def caught(side: str) -> Target:
    """What every side should do."""
    return Target("caught", 1.0, "a change made in place is caught", "at least", side=side)


def looking(side: str, peer: str) -> Target:
    """The cost beside the one peer that looks for changes too."""
    what = "CPU of agex, which looks for changes too, over ours"
    return Target("commits_cpu", 1.0, what, "at least", side=side, under=(peer,))


SCENARIO = Scenario(
    name="state-read",
    title="A 10 MB list of 112,000 small dicts read but not changed, beside a number that is set",
    run=run,
    engines=EVERY_HELD,
    metrics=metrics(*MORE, on_disk=False),
    size={"records": 112_000, "rounds": 20, "reopened": 5, "seconds": 60},
    quick={"records": 12_000, "rounds": 5, "reopened": 2, "seconds": 20},
    targets=(
        bytes_target(HELD),
        caught(HELD),
        looking(HELD, "agex-state"),
        *targets("commits_cpu", "CPU of the best peer over ours", 1.0, on_disk=False),
        *targets("reopened_ms", "the same, a new handle each round", 1.0, on_disk=False),
    ),
    notes=(*NOTES, *UNCHANGED),
    order=200,
    repeat=3,
)
