"""Takes the steps of a workload on disk: bytes after close, CPU and wall time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, islice, pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench._clock import Bounds, Stopwatch, block_bytes, folder_bytes
from bench._model import PEAK, Engine, EngineInfo, Measured, Metric, Place
from bench._stats import growth
from bench.scenarios._work import Step, Work, take

MARKS = 20

AMPLIFICATION = Metric("amplification", "folder / payload", "x", 3)
RESTART = Metric("restart_ms", "CPU of the first commit after reopening", "ms", 1)


def metrics(*before_times: Metric) -> tuple[Metric, ...]:
    """The figures of every workload on disk, with some of its own among them."""
    return (
        Metric("commits", "commits", digits=0),
        Metric("folder_mb", "folder after close", "MB", 1),
        *before_times,
        Metric("kb", "new bytes per commit, mean", "KB", 1),
        Metric("worst_kb", "new bytes, worst commit", "KB", 1),
        Metric("commits_cpu", "CPU of all commits and the close", "s"),
        Metric("cpu_ms", "CPU per commit", "ms", 3),
        Metric("growth", "growth per commit already made", "us", 3),
        Metric("wall_ms", "wall per commit", "ms", 3),
        Metric("wall_s", "wall of all commits and the close", "s"),
        Metric("open_mb", "largest folder while open", "MB", 1),
        Metric("blocks_mb", "blocks on disk after close", "MB", 1),
        PEAK,
    )


NOTES = (
    "Bytes are the sizes of all files in the folder after the side was closed; what reads back "
    "is read after opening it again. The worst commit is the largest of a few more, after each "
    "of which the side is closed and its folder measured.",
    "Times per commit are medians. Every side runs at its durable setting, as its note says.",
)

Closed = Callable[[EngineInfo, Place], Mapping[str, float]]


def no_more(info: EngineInfo, place: Place) -> Mapping[str, float]:
    """Figures of the closed folder, if a scenario has none of its own."""
    return {}


@dataclass
class _Start:
    """A side that is open and has recorded what the steps begin with."""

    engine: Engine
    stored: int = 0
    """Bytes in the folder before the first step."""
    steps: int = 0
    """How many steps were taken since, which are not on the watch."""
    figures: dict[str, float] = field(default_factory=dict)


def run_on_disk(
    info: EngineInfo,
    work: Work,
    commits: int,
    size: Mapping[str, int],
    closed: Closed = no_more,
) -> Measured:
    """Take the steps in a folder of their own, close it, look at it, and read it back."""
    with TemporaryDirectory() as name:
        place, steps, watch = Place(Path(name)), work.steps(), Stopwatch()
        start = _start(info, place, work, steps)
        bounds = Bounds(size["seconds"], folder=place.folder)
        cap = take(islice(steps, commits), start.engine, watch, bounds)
        taken = len(watch.cpu)
        watch(start.engine.close)
        figures = start.figures | times(watch, taken) | _bytes(place.folder, work, start, taken)
        figures["open_mb"] = max(bounds.largest, folder_bytes(place.folder)) / 1e6
        figures |= closed(info, place)
        _reopen_and_check(info, place, work)
        figures["worst_kb"] = _worst(info, place, steps, size["worst"]) / 1e3
    notes = [f"stopped at {taken} of {commits} commits by {cap}"] if cap else []
    return Measured(figures, notes, {"commits_cpu": marks(watch.cpu[:taken], commits)})


def _start(info: EngineInfo, place: Place, work: Work, steps: Iterator[Step]) -> _Start:
    engine, load, restart = info.open(place), Stopwatch(), Stopwatch()
    if not load(partial(work.begin, engine)):
        return _Start(engine)
    engine.close()
    stored = folder_bytes(place.folder)
    engine = info.open(place)
    restart(partial(next(steps), engine))
    figures = {"load_s": load.cpu[0], "restart_ms": restart.cpu[0] * 1e3}
    return _Start(engine, stored, 1, figures)


def times(watch: Stopwatch, taken: int) -> dict[str, float]:
    """What the commits cost, which come first on the watch."""
    tenth = max(1, taken // 10)
    first, last = median(watch.cpu[:tenth]), median(watch.cpu[:taken][-tenth:])
    return {
        "commits": taken,
        "commits_cpu": sum(watch.cpu),
        "cpu_ms": median(watch.cpu[:taken]) * 1e3,
        "first_ms": first * 1e3,
        "last_ms": last * 1e3,
        "grown": last / first,
        "growth": growth(watch.cpu[:taken]),
        "wall_ms": median(watch.wall[:taken]) * 1e3,
        "wall_s": sum(watch.wall),
    }


def _bytes(folder: Path, work: Work, start: _Start, taken: int) -> dict[str, float]:
    stored = folder_bytes(folder)
    return {
        "folder_mb": stored / 1e6,
        "blocks_mb": block_bytes(folder) / 1e6,
        "amplification": stored / work.payload(),
        "kb": (stored - start.stored) / (taken + start.steps) / 1e3,
    }


def marks(seconds: list[float], planned: int) -> list[float]:
    """The sum of the steps at each twentieth of the planned ones, as far as it came."""
    sums = list(accumulate(seconds))
    ends = sorted({max(1, planned * mark // MARKS) for mark in range(1, MARKS + 1)})
    return [sums[end - 1] for end in ends if end <= len(sums)]


def _reopen_and_check(info: EngineInfo, place: Place, work: Work) -> None:
    engine = info.open(place)
    work.check(engine)
    engine.close()


def _worst(info: EngineInfo, place: Place, steps: Iterator[Step], count: int) -> int:
    """The most bytes that one of a few further commits adds to the closed folder."""
    stored = [folder_bytes(place.folder)]
    for step in islice(steps, count):
        engine = info.open(place)
        step(engine)
        engine.close()
        stored.append(folder_bytes(place.folder))
    return max(after - before for before, after in pairwise(stored))
