"""Processes that commit to one branch: how many commits, and whether each waits equally long."""

from __future__ import annotations

import time
from collections.abc import Mapping
from multiprocessing.synchronize import Barrier
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench._model import EngineInfo, Measured, Metric, Place, Scenario, Target
from bench._ropewalk import SHARED_SPACE, file_store, sqlite_store
from bench.scenarios._commits import PATIENCE, Done, run_together
from bench.scenarios._sides import FILES, OURS_ON_DISK
from ropewalk.history import History

STORES = {OURS_ON_DISK: sqlite_store, FILES: file_store}
START = {"count": 0, "own": {}}


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Let processes count in one value, each for itself and all together."""
    with TemporaryDirectory() as name:
        place = Place(Path(name))
        with STORES[info.name](place) as store:
            History(store, SHARED_SPACE).open().commit(START)
        places = [place] * size["processes"]
        done = run_together(info, places, size["together_seconds"], _share_for)
        with STORES[info.name](place) as store:
            value = History(store, SHARED_SPACE).value()
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


def _share_for(name: str, at: int, place: Place, seconds: float, barrier: Barrier) -> Done:
    """Commit for so long; the value is how many operations went by during each commit."""
    with STORES[name](place) as store:
        branch, waited = History(store, SHARED_SPACE).open(), list[int]()
        barrier.wait(PATIENCE)
        began, cpu = time.monotonic(), time.process_time()
        while time.monotonic() - began < seconds:
            before = store.view(SHARED_SPACE).sequence
            value = branch.read()
            value["count"] += 1
            value["own"][str(at)] = len(waited) + 1
            branch.commit(value, mergers={"count": "add"})
            waited.append(store.view(SHARED_SPACE).sequence - before)
        wall, cpu = time.monotonic() - began, time.process_time() - cpu
        barrier.wait(PATIENCE)
    return Done(len(waited), wall, cpu, waited)


SCENARIO = Scenario(
    name="commits-shared",
    title="Small durable commits of several processes to one branch",
    run=run,
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
)
