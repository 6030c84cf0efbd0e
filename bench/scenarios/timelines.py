"""The steps of an agent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import accumulate, islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from bench._clock import Bounds, Stopwatch, folder_bytes
from bench._model import PEAK, Engine, EngineInfo, Measured, Metric, Place, Scenario, Target
from bench._text import Text, message, payload_bytes
from bench.engines.timelines import Steps
from bench.scenarios._sides import EVERY_STEPS, PEERS_STEPS, STEPS_ON_DISK
from bench.scenarios.commits import Small
from bench.scenarios.values import Step, Work, take

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


Make = Callable[[Text, int], dict[str, Any]]
"""Makes the message of a number."""


class Growing(Work):
    """A state with a list of messages that grows by one at each step."""

    def __init__(self, text: Text, make: Make = message) -> None:
        self._text, self._make = text, make
        self.state: dict[str, Any] = {"messages": []}

    def steps(self) -> Iterator[Step]:
        messages = self.state["messages"]
        while True:
            messages.append(self._make(self._text, len(messages)))
            yield self._record

    def _record(self, engine: Engine) -> None:
        engine.commit(self.state)

    def check(self, engine: Engine) -> None:
        assert engine.read() == self.state, "the list did not read back"

    def payload(self) -> int:
        return payload_bytes(self.state)


def run_list(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Save the steps and look back."""
    return run_steps(info, Growing(Text(1)), size["checkpoints"], size)


def run_small(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Save the steps and look back."""
    return run_steps(info, Small(1), size["checkpoints"], size)


def _at_once(metric: str, text: str) -> Target:
    return Target(metric, 100.0, text, side=STEPS_ON_DISK)


SCENARIOS = (
    Scenario(
        name="timeline-list",
        title="1,000 checkpoints of a list that grows by about 1 KB each",
        run=run_list,
        engines=EVERY_STEPS,
        metrics=METRICS,
        size={"checkpoints": 1_000, "seconds": 120},
        quick={"checkpoints": 100, "seconds": 20},
        targets=(
            Target(
                "commits_cpu",
                10.0,
                "CPU of the peer over ours",
                "at least",
                side=STEPS_ON_DISK,
                under=PEERS_STEPS,
            ),
            Target(
                "folder_mb",
                100.0,
                "bytes of the peer over ours",
                "at least",
                side=STEPS_ON_DISK,
                under=PEERS_STEPS,
            ),
        ),
        notes=NOTES,
        order=190,
        repeat=3,
    ),
    Scenario(
        name="timeline-small",
        title="10,000 checkpoints of a state of about 600 bytes, of which a number changes",
        run=run_small,
        engines=EVERY_STEPS,
        metrics=METRICS,
        size={"checkpoints": 10_000, "seconds": 120},
        quick={"checkpoints": 300, "seconds": 20},
        targets=(
            Target(
                "commits_cpu",
                1.0,
                "CPU of the peer over ours",
                "at least",
                side=STEPS_ON_DISK,
                under=PEERS_STEPS,
            ),
            Target(
                "folder_mb",
                1.0,
                "bytes of the peer over ours",
                "at least",
                side=STEPS_ON_DISK,
                under=PEERS_STEPS,
            ),
            _at_once("history_ms", "history(limit=50) in a timeline just opened, wall"),
            _at_once("tree_ms", "visualize_tree() in a timeline just opened, wall"),
        ),
        notes=NOTES,
        order=180,
        repeat=3,
    ),
)
