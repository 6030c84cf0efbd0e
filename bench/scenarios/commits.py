"""Small commits: durable, relaxed, from many processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from multiprocessing import get_context
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from bench._clock import Bounds, Stopwatch
from bench._model import (
    PEAK,
    Durability,
    Engine,
    EngineInfo,
    Measured,
    Metric,
    Place,
    Scenario,
    Target,
)
from bench._registry import engines
from bench._text import Text, payload_bytes, small_state
from bench.scenarios._sides import BARE_ON_DISK, FILES, OURS_ON_DISK, PEERS_ON_DISK
from bench.scenarios.values import Step, Work, take

SIDES = (OURS_ON_DISK, FILES, *PEERS_ON_DISK, BARE_ON_DISK)
BLOCK = 25
PATIENCE = 180.0
"""Seconds to wait for the other processes."""

METRICS = (
    Metric("commits", "commits", digits=0),
    Metric("rate", "1 process: commits", "1/s", 0),
    Metric("wall_ms", "wall per commit", "ms", 3),
    Metric("cpu_ms", "CPU per commit", "ms", 3),
    Metric("wall_over_bare", "wall / bare transaction", "x"),
    Metric("cpu_over_bare", "CPU / bare transaction", "x"),
    Metric("rate_together", "8 processes: commits", "1/s", 0),
    Metric("cpu_together_ms", "CPU per commit", "ms", 3),
    Metric("fairness", "slowest / fastest process", "x"),
    Metric("kept", "every last commit is there", "yes/no"),
    PEAK,
)
NOTES = (
    "A state of about 600 bytes, handed over whole, of which one field changed. Per commit is "
    "the mean, with what checkpoints cost.",
    "With one process, blocks of 25 commits take turns with blocks of the bare transaction, in "
    "the same process and on the same disk; the ratio is that of the two sums.",
    "With 8 processes on two cores, each commits to its own branch (or key) of one store for a "
    "fixed time. Afterwards the last state of each must read back.",
)


class Small(Work):
    """A small state in which the number of the step goes up."""

    def __init__(self, seed: int) -> None:
        self.value = small_state(Text(seed))

    def begin(self, engine: Engine) -> bool:
        engine.commit(self.value)
        return True

    def steps(self) -> Iterator[Step]:
        while True:
            self.value["step"] += 1
            yield self._record

    def _record(self, engine: Engine) -> None:
        engine.change(self.value, ("step",), self.value["step"])

    def check(self, engine: Engine) -> None:
        assert engine.read() == self.value, "the state did not read back"

    def payload(self) -> int:
        return payload_bytes(self.value)


def run(info: EngineInfo, size: Mapping[str, int], durability: Durability) -> Measured:
    """Commit alone beside the bare transaction, then together with others."""
    alone = in_turns(info, size, durability)
    together = _together(info, size, durability)
    return Measured({**alone.figures, **together}, alone.notes)


def in_turns(info: EngineInfo, size: Mapping[str, int], durability: Durability) -> Measured:
    """Commit beside the bare transaction, in blocks that take turns."""
    with ExitStack() as open_ones:
        folders = [open_ones.enter_context(TemporaryDirectory()) for _ in range(2)]
        ours, bare = (Place(Path(folder), durability) for folder in folders)
        side, floor = _Side(info, ours, 1), _Side(engines()[BARE_ON_DISK], bare, 1)
        open_ones.callback(side.engine.close)
        open_ones.callback(floor.engine.close)
        bounds, cap = Bounds(size["seconds"]), None
        for _ in range(size["commits"] // BLOCK):
            cap = side.block(bounds) or floor.block(bounds)
            if cap:
                break
        side.work.check(side.engine)
    taken = len(side.watch.cpu)
    notes = [f"stopped at {taken} of {size['commits']} commits by {cap}"] if cap else []
    return Measured(_figures(side.watch, floor.watch), notes)


class _Side:
    """An open side with its own work and watch."""

    def __init__(self, info: EngineInfo, place: Place, seed: int) -> None:
        self.engine, self.work, self.watch = info.open(place), Small(seed), Stopwatch()
        self.work.begin(self.engine)
        self._steps = self.work.steps()

    def block(self, bounds: Bounds) -> str | None:
        """Take a few steps."""
        return take(islice(self._steps, BLOCK), self.engine, self.watch, bounds)


def _figures(side: Stopwatch, bare: Stopwatch) -> dict[str, float]:
    wall, cpu = _mean(side.wall), _mean(side.cpu)
    return {
        "commits": len(side.wall),
        "rate": 1 / wall,
        "wall_ms": wall * 1e3,
        "cpu_ms": cpu * 1e3,
        "wall_over_bare": wall / _mean(bare.wall),
        "cpu_over_bare": cpu / _mean(bare.cpu),
        "quiet_over_bare": _part(side.wall, 0.1) / _part(bare.wall, 0.1),
        "late": _part(side.wall, 0.99) / _part(side.wall, 0.5),
        "late_bare": _part(bare.wall, 0.99) / _part(bare.wall, 0.5),
        "median_ms": _part(side.wall, 0.5) * 1e3,
    }


def _part(seconds: list[float], part: float) -> float:
    """What so large a part of them takes at most."""
    return sorted(seconds)[min(len(seconds) - 1, int(len(seconds) * part))]


def _mean(seconds: list[float]) -> float:
    return sum(seconds) / len(seconds)


@dataclass(frozen=True)
class Done:
    """What one of several processes did."""

    commits: int = 0
    wall: float = 0.0
    cpu: float = 0.0
    value: Any = None
    failure: str = ""


def _together(
    info: EngineInfo, size: Mapping[str, int], durability: Durability
) -> dict[str, float]:
    with TemporaryDirectory() as name:
        place = Place(Path(name), durability)
        info.open(place).close()  # Made by one, so that the others find it.
        places = [replace(place, branch=f"branch-{at}") for at in range(size["processes"])]
        done = run_together(info, places, size["together_seconds"])
        kept = all(_reads_back(info, *pair) for pair in zip(places, done, strict=True))
    commits = sum(one.commits for one in done)
    fewest, most = min(one.commits for one in done), max(one.commits for one in done)
    return {
        "rate_together": commits / max(one.wall for one in done),
        "cpu_together_ms": sum(one.cpu for one in done) / commits * 1e3,
        "fairness": fewest / most,
        "kept": float(kept),
    }


Together = Callable[[str, int, Place, float, Barrier], "Done"]
"""What a process does, given its side, its number and its place, for so many seconds."""


def run_together(
    info: EngineInfo, places: list[Place], seconds: float, work: Together | None = None
) -> list[Done]:
    """Let a process work in each place at once, for so long; what each did."""
    work = work or _commit_for
    context = get_context("spawn")
    barrier, answers = context.Barrier(len(places)), context.Queue()
    workers = [
        context.Process(
            target=_worker, args=(work, info.name, at, place, seconds, barrier, answers)
        )
        for at, place in enumerate(places)
    ]
    for worker in workers:
        worker.start()
    found: dict[int, Done] = dict(answers.get(timeout=PATIENCE) for _ in workers)
    for worker in workers:
        worker.join(PATIENCE)
    failures = [one.failure for one in found.values() if one.failure]
    assert not failures, failures[0]
    return [found[at] for at in range(len(places))]


def _worker(
    work: Together,
    name: str,
    at: int,
    place: Place,
    seconds: float,
    barrier: Barrier,
    answers: Queue[Any],
) -> None:
    try:
        answers.put((at, work(name, at, place, seconds, barrier)))
    except BaseException as failure:
        barrier.abort()
        answers.put((at, Done(failure=f"process {at}: {failure!r}")))


def _commit_for(name: str, at: int, place: Place, seconds: float, barrier: Barrier) -> Done:
    engine, work = engines()[name].open(place), Small(at)
    work.begin(engine)
    steps, commits = work.steps(), 0
    barrier.wait(PATIENCE)
    began, cpu = time.monotonic(), time.process_time()
    while time.monotonic() - began < seconds:
        next(steps)(engine)
        commits += 1
    wall, cpu = time.monotonic() - began, time.process_time() - cpu
    barrier.wait(PATIENCE)  # Closing costs too, so nobody does it while others are measured.
    engine.close()
    return Done(commits, wall, cpu, work.value)


def _reads_back(info: EngineInfo, place: Place, done: Done) -> bool:
    engine = info.open(place)
    try:
        return bool(engine.read() == done.value)
    finally:
        engine.close()


def run_durable(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Commit so that a power loss takes nothing."""
    return run(info, size, "full")


def run_relaxed(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Commit without waiting for the disk, where a side can."""
    return run(info, size, "relaxed")


def _rate(metric: str, text: str) -> Target:
    what = f"commits per second over kvgit's, {text}"
    return Target(metric, 2.0, what, "at least", side=OURS_ON_DISK, over=("kvgit-disk",))


START = {"count": 0, "own": {}}


def run_shared(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Let processes count in one value, each for itself and all together."""
    with TemporaryDirectory() as name:
        place = Place(Path(name))
        with _shared(info.name, place) as history:
            history.open().commit(START)
        places = [place] * size["processes"]
        done = run_together(info, places, size["together_seconds"], _share_for)
        with _shared(info.name, place) as history:
            value = history.value()
    commits = [one.commits for one in done]
    waits = [median(one.value) for one in done if one.value]
    return Measured(
        {
            "rate_together": sum(commits) / max(one.wall for one in done),
            "cpu_together_ms": sum(one.cpu for one in done) / sum(commits) * 1e3,
            "waited": max(waits),
            "waited_over": max(waits) / min(waits),
            "fairness": min(commits) / max(commits),
            "kept": float(value["count"] == sum(commits) == sum(value["own"].values())),
        }
    )


@contextmanager
def _shared(name: str, place: Place) -> Iterator[Any]:
    # The environments of the peers, which load this module too, have no Ropewalk.
    from bench.ropewalk_sides import SHARED_SPACE, file_store, sqlite_store
    from ropewalk.history import History

    with {OURS_ON_DISK: sqlite_store, FILES: file_store}[name](place) as store:
        yield History(store, SHARED_SPACE)


def _share_for(name: str, at: int, place: Place, seconds: float, barrier: Barrier) -> Done:
    """Commit for so long; the value is how many operations went by during each commit."""
    with _shared(name, place) as history:
        branch, waited = history.open(), list[int]()
        barrier.wait(PATIENCE)
        began, cpu = time.monotonic(), time.process_time()
        while time.monotonic() - began < seconds:
            before = history.store.view(history.space).sequence
            value = branch.read()
            value["count"] += 1
            value["own"][str(at)] = len(waited) + 1
            branch.commit(value, mergers={"count": "add"})
            waited.append(history.store.view(history.space).sequence - before)
        wall, cpu = time.monotonic() - began, time.process_time() - cpu
        barrier.wait(PATIENCE)
    return Done(len(waited), wall, cpu, waited)


SCENARIOS = (
    Scenario(
        name="commits-durable",
        title="Small commits of one changed field, each safe from a power loss",
        run=run_durable,
        engines=SIDES,
        metrics=METRICS,
        size={"commits": 1000, "seconds": 20, "processes": 8, "together_seconds": 3},
        quick={"commits": 100, "seconds": 10, "processes": 2, "together_seconds": 1},
        targets=(
            Target(
                "wall_over_bare",
                1.5,
                "wall per commit over the bare transaction",
                side=OURS_ON_DISK,
            ),
            Target("kept", 1.0, "every last commit is there", "at least", side=OURS_ON_DISK),
        ),
        notes=NOTES,
        order=160,
        repeat=3,
    ),
    Scenario(
        name="commits-relaxed",
        title="Small commits of one changed field, of which a power loss may take the last",
        run=run_relaxed,
        engines=SIDES,
        metrics=METRICS,
        size={"commits": 1000, "seconds": 20, "processes": 8, "together_seconds": 3},
        quick={"commits": 100, "seconds": 10, "processes": 2, "together_seconds": 1},
        targets=(
            _rate("rate", "1 process"),
            _rate("rate_together", "8 processes"),
            Target("kept", 1.0, "every last commit is there", "at least", side=OURS_ON_DISK),
        ),
        notes=NOTES,
        order=170,
        repeat=3,
    ),
    Scenario(
        name="commits-shared",
        title="Small durable commits of several processes to one branch",
        run=run_shared,
        engines=(OURS_ON_DISK, FILES),
        metrics=(
            Metric("rate_together", "4 processes: commits", "1/s", 0),
            Metric("cpu_together_ms", "CPU per commit", "ms", 3),
            Metric("waited", "commits gone by while the slowest process made one", "", 0),
            Metric("waited_over", "the same, over that of the fastest", "x"),
            Metric("fairness", "slowest / fastest process", "x"),
            Metric("kept", "every commit counts", "yes/no"),
        ),
        size={"processes": 4, "together_seconds": 5},
        quick={"processes": 2, "together_seconds": 1},
        targets=(
            Target("waited_over", 3.0, "longest wait over the shortest", side=OURS_ON_DISK),
            Target("waited_over", 3.0, "longest wait over the shortest, files", side=FILES),
            Target("kept", 1.0, "every commit counts", "at least", side=OURS_ON_DISK),
        ),
        notes=(
            "Each process reads the value, counts in it, and commits; what others did meanwhile is "
            "merged. Waits are counted in commits of all processes, because time says nothing of "
            "fairness on a machine that may stop one of them; each process's is its median.",
        ),
        order=175,
        repeat=3,
    ),
)
