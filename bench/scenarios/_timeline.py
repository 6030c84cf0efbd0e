"""Takes the steps of an agent through timelines: CPU, bytes after close, and looking back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import accumulate, islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench._clock import Bounds, Stopwatch, folder_bytes
from bench._model import PEAK, Engine, EngineInfo, Measured, Metric, Place
from bench.engines.timelines import Steps
from bench.scenarios._work import Work, take

MARKS = 20
_LOOKS = 5
_LIMIT = 50

METRICS = (
    Metric("checkpoints", "checkpoints", digits=0),
    Metric("commits_cpu", "CPU of all checkpoints and the close", "s"),
    Metric("first_ms", "CPU per checkpoint, first tenth", "ms", 3),
    Metric("last_ms", "CPU per checkpoint, last tenth", "ms", 3),
    Metric("folder_mb", "folder after close", "MB", 2),
    Metric("wall_s", "wall of all checkpoints and the close", "s"),
    Metric("history_ms", "wall of history(limit=50)", "ms", 1),
    Metric("history_cpu_ms", "CPU of history(limit=50)", "ms", 1),
    Metric("tree_ms", "wall of visualize_tree()", "ms", 1),
    Metric("tree_cpu_ms", "CPU of visualize_tree()", "ms", 1),
    PEAK,
)
NOTES = (
    "Each checkpoint is handed the whole state, with a description and the name of its step; "
    "no side is told what changed. Per checkpoint is the median of a tenth.",
    "Of Ropewalk the durable setting is compared with both sides of the peer, although the "
    "peer's files are never synced; the relaxed setting is shown beside it.",
    "A side that stopped early is compared at the last twentieth that both reached, by the CPU "
    "and by the folder as it was there, with what is open.",
    "History and tree are asked once for each of five freshly opened timelines, without the time "
    "to open them. The peer has no such figures: after opening it shows no earlier step.",
)


def run_steps(info: EngineInfo, work: Work, count: int, size: Mapping[str, int]) -> Measured:
    """Save the steps in a folder of their own, close it, look at it, and read it back."""
    with TemporaryDirectory() as name:
        place, watch = Place(Path(name)), Stopwatch()
        engine, bounds = info.open(place), Bounds(size["seconds"], folder=place.folder)
        folder = _Folder(place.folder, count)
        cap = take(islice(work.steps(), count), engine, watch, bounds, folder.look)
        taken = len(watch.cpu)
        watch(engine.close)
        figures = _figures(watch, taken, folder_bytes(place.folder))
        figures |= _look_back(info, place, min(taken, _LIMIT))
        _read_back(info, place, work)
    notes = [f"stopped at {taken} of {count} checkpoints by {cap}"] if cap else []
    sums = list(accumulate(watch.cpu[:taken]))
    cpu = [sums[end - 1] for end in folder.ends if end <= taken]
    return Measured(figures, notes, {"commits_cpu": cpu, "folder_mb": folder.course})


class _Folder:
    """Looks at a folder at each twentieth of the steps."""

    def __init__(self, folder: Path, planned: int) -> None:
        self._folder, self._taken = folder, 0
        self.ends = sorted({max(1, planned * mark // MARKS) for mark in range(1, MARKS + 1)})
        self.course: list[float] = []
        """Its megabytes at every end that was reached."""

    def look(self) -> None:
        """To be called after every step."""
        self._taken += 1
        if self._taken == self.ends[len(self.course)]:
            self.course.append(folder_bytes(self._folder) / 1e6)


def _figures(watch: Stopwatch, taken: int, stored: int) -> dict[str, float]:
    tenth = max(1, taken // 10)
    return {
        "checkpoints": taken,
        "commits_cpu": sum(watch.cpu),
        "first_ms": median(watch.cpu[:tenth]) * 1e3,
        "last_ms": median(watch.cpu[:taken][-tenth:]) * 1e3,
        "folder_mb": stored / 1e6,
        "wall_s": sum(watch.wall),
    }


def _look_back(info: EngineInfo, place: Place, expected: int) -> dict[str, float]:
    """What it costs to see the past, where a side can."""
    figures: dict[str, float] = {}
    for name, ask in (("history", _ask_history(expected)), ("tree", _ask_tree)):
        watch = Stopwatch()
        for _ in range(_LOOKS):
            engine = info.open(place)
            if isinstance(engine, Steps) and engine.can_look_back:
                watch(partial(ask, engine))
            engine.close()
        if watch.wall:
            figures[f"{name}_ms"] = median(watch.wall) * 1e3
            figures[f"{name}_cpu_ms"] = median(watch.cpu) * 1e3
    return figures


def _ask_history(expected: int) -> Callable[[Steps], None]:
    def ask(engine: Steps) -> None:
        assert engine.history(_LIMIT) == expected, "the history is not whole"

    return ask


def _ask_tree(engine: Steps) -> None:
    assert "Step 1:" in engine.tree(), "the first step is not in the tree"


def _read_back(info: EngineInfo, place: Place, work: Work) -> None:
    engine: Engine = info.open(place)
    work.check(engine)
    engine.close()
