"""One of 100,000 keys of a map changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import count, islice, pairwise
from statistics import median

from bench._clock import Bounds, Stopwatch
from bench._model import PEAK, Engine, EngineInfo, Measured, Metric, Scenario, Target
from bench._text import Text
from bench._values import payload_bytes, record
from bench.scenarios._sides import EVERY
from bench.scenarios._work import Step, Work, take


class Keys(Work):
    """So many keys with a small record each; each step changes one."""

    def __init__(self, keys: int) -> None:
        self._text = Text(5)
        self.pairs = {f"key-{number:06}": record(self._text, number) for number in range(keys)}
        self.changed = ""

    def begin(self, engine: Engine) -> bool:
        engine.load(self.pairs)
        return True

    def steps(self) -> Iterator[Step]:
        names = list(self.pairs)
        for number in count(len(names)):
            key = self.changed = self._text.random.choice(names)
            self.pairs[key] = record(self._text, number)
            yield partial(self._record, key)

    def _record(self, key: str, engine: Engine) -> None:
        engine.put(key, self.pairs[key])

    def check(self, engine: Engine) -> None:
        """Look at the key that changed last, and at the first one."""
        for key in (self.changed, next(iter(self.pairs))):
            assert engine.get(key) == self.pairs[key], f"{key} did not read back"

    def payload(self) -> int:
        return payload_bytes(self.pairs)


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Load the keys, then change one at a time."""
    engine, work, load, watch = info.open(), Keys(size["keys"]), Stopwatch(), Stopwatch()
    load(partial(work.begin, engine))
    stored = [engine.stored_bytes()]

    def after() -> None:
        stored.append(engine.stored_bytes())
        if len(stored) % 10 == 0:
            work.check(engine)

    steps = islice(work.steps(), size["changes"])
    cap = take(steps, engine, watch, Bounds(size["seconds"]), after)
    grown = [after - before for before, after in pairwise(stored)]
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
        "Ropewalk, kvgit and agex are told the key that changed. The others have no keys: they "
        "are handed their whole dict.",
    ),
    order=50,
    repeat=3,
)
