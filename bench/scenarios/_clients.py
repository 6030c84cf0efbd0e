"""Clients of a server commit: one alone, one in turns with the server's floor, and 16 at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import islice
from multiprocessing import get_context
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from threading import BrokenBarrierError, Thread
from typing import Any, NamedTuple

from bench._clock import Bounds, Stopwatch
from bench._model import EngineInfo, Measured, Metric, Place, Target
from bench._registry import engines
from bench._servers import Server, running
from bench.engines.servers import Client
from bench.scenarios._sides import EMBEDDED, ENGINES, FLOOR_OF, SAVER, SAVER_STEP
from bench.scenarios._work import Step, Work, take

BLOCK = 5
PATIENCE = 300.0
"""Seconds to wait for the other processes."""

OVER = Metric("over_ms", "wall above the floor", "ms", 3)
AMPLIFICATION = Metric("amplification", "stored / payload", "x", 3)
_BEFORE = (
    Metric("commits", "commits", digits=0),
    Metric("wall_ms", "1 client: wall per commit, median", "ms", 3),
)
_AFTER = (
    Metric("rate", "commits", "1/s", 0),
    Metric("client_ms", "CPU of the client per commit", "ms", 3),
    Metric("server_ms", "CPU of the server per commit", "ms", 3),
    Metric("stored_mb", "stored by all commits", "MB", 3),
    Metric("kb", "stored per commit", "KB", 2),
    Metric("log_kb", "written to the server's log per commit", "KB", 2),
    Metric("rate_together", "16 clients: commits", "1/s", 0),
    Metric("wall_together_ms", "wall per commit, median", "ms", 2),
    Metric("client_together_ms", "CPU of the clients per commit", "ms", 3),
    Metric("server_together_ms", "CPU of the server per commit", "ms", 3),
    Metric("fairness", "slowest / fastest client", "x"),
)
NOTES = (
    "The server runs on the same two cores as its clients, on loopback, with its data in a "
    "temporary folder: Postgres with fsync and synchronous_commit on, Redis with appendfsync "
    "always, SeaweedFS as it comes. A fresh server is started for each unit.",
    "The 16 clients are 4 processes of 4 threads, as a program with a few workers has them: 16 "
    "interpreters would take the two cores from the server. Each client has a history of its "
    "own (a space, a thread of the saver), and they commit for a fixed time. Afterwards the "
    "last value of each must read back through a store that was opened anew.",
    "CPU of a server is that of all its processes. Stored is the size of the database, the "
    "memory of Redis, the objects in the bucket or the folder, after the client left; the log "
    "is the WAL of Postgres and the AOF of Redis.",
)


def metrics(*own: Metric, last: tuple[Metric, ...] = ()) -> tuple[Metric, ...]:
    """The figures of every scenario of clients, with some of its own among them."""
    return (*_BEFORE, *own, *_AFTER, *last)


def as_embedded(metric: str) -> tuple[Target, ...]:
    """What an engine stores must be what the embedded one does, give or take a tenth."""
    text = "stored over what the embedded engine stores"
    return tuple(
        Target(metric, 1.1, f"{name}: {text}", side=name, over=(EMBEDDED,)) for name in ENGINES
    )


def beside_savers(limit: float, what: str) -> tuple[Target, ...]:
    """How much more several clients must commit than with LangGraph's saver on Postgres."""
    savers = {"PostgresSaver": SAVER, "PostgresSaver as in a graph": SAVER_STEP}
    return tuple(
        Target(
            "rate_together",
            limit,
            f"{what}: commits over those of {label}",
            "at least",
            side=ENGINES[0],
            over=(name,),
        )
        for label, name in savers.items()
    )


Together = Callable[[Mapping[str, int], int], Work]
"""The work of the n-th of several clients. It is made in another process."""


def run(
    info: EngineInfo,
    size: Mapping[str, int],
    alone: Work,
    together: Together,
    beside: Callable[[], Work] | None = None,
) -> Measured:
    """Start the server; commit alone, in turns with the floor if asked for, and together."""
    with TemporaryDirectory() as name, running(info.server, Path(name)) as server:
        place = Place(Path(name), url=server.url)
        warm_up(info, place)
        found = _alone(info, server, place, alone, size)
        if beside:
            found.figures |= _beside_floor(info, place, size["blocks"], beside)
        found.figures |= _run_together(info, server, place, size, together)
    return found


def warm_up(info: EngineInfo, place: Place) -> None:
    """Let the side make its tables, which are no commit's."""
    with closing(opened(info, replace(place, branch="first"))) as client:
        client.commit({"first": 1})


def opened(info: EngineInfo, place: Place) -> Client:
    """The first client of a process."""
    client = info.open(place)
    assert isinstance(client, Client), f"{info.name} has no clients"
    return client


# -- One client ---------------------------------------------------------------------------


class _Sizes(NamedTuple):
    stored: int
    log: int


def _sizes(server: Server) -> _Sizes:
    return _Sizes(server.stored_bytes(), server.log_bytes())


def _alone(
    info: EngineInfo, server: Server, place: Place, work: Work, size: Mapping[str, int]
) -> Measured:
    empty, watch = _sizes(server), Stopwatch()
    with closing(opened(info, place)) as client:
        work.begin(client)
    first = _sizes(server)
    with closing(opened(info, place)) as client:
        bounds, before = Bounds(size["seconds"], folder=server.folder), server.cpu_seconds()
        cap = take(islice(work.steps(), size["commits"]), client, watch, bounds)
        used = server.cpu_seconds() - before
    last, commits = _sizes(server), len(watch.wall)
    with closing(opened(info, place)) as client:
        work.check(client)
    figures = {
        "commits": commits,
        "wall_ms": median(watch.wall) * 1e3,
        "rate": commits / sum(watch.wall),
        "client_ms": sum(watch.cpu) / commits * 1e3,
        "kb": (last.stored - first.stored) / commits / 1e3,
        "stored_mb": (last.stored - empty.stored) / 1e6,
        "amplification": (last.stored - empty.stored) / work.payload(),
    }
    if server.serves:
        figures["server_ms"] = used / commits * 1e3
    if last.log:
        figures["log_kb"] = (last.log - first.log) / commits / 1e3
    notes = [f"one client was stopped at {commits} of {size['commits']} commits by {cap}"]
    return Measured(figures, notes if cap else [])


def _beside_floor(
    info: EngineInfo, place: Place, blocks: int, work: Callable[[], Work]
) -> dict[str, float]:
    """How far the median of a commit is above that of the floor, block by block."""
    floor = FLOOR_OF.get(info.server)
    if floor in (None, info.name):
        return {}
    place = replace(place, branch="beside")
    with ExitStack() as stack:
        sides = [_Side(one, place, work()) for one in (info, engines()[floor])]
        for side in sides:
            stack.callback(side.client.close)
        for _ in range(blocks):
            for side in sides:
                side.block()
    ours, bare = (median(side.watch.wall) * 1e3 for side in sides)
    return {"floor_ms": bare, "over_ms": ours - bare}


class _Side:
    """An open side with its own work and watch."""

    def __init__(self, info: EngineInfo, place: Place, work: Work) -> None:
        self.client, self.watch = opened(info, place), Stopwatch()
        work.begin(self.client)
        self._steps: Iterator[Step] = work.steps()
        next(self._steps)(self.client)  # Connections and prepared statements.

    def block(self) -> None:
        """Take a few steps."""
        take(islice(self._steps, BLOCK), self.client, self.watch, Bounds(PATIENCE))


# -- Several clients ----------------------------------------------------------------------


@dataclass(frozen=True)
class _Done:
    """What the clients of one process did."""

    commits: tuple[int, ...] = ()
    walls: tuple[float, ...] = ()
    """Of each commit."""
    took: float = 0.0
    cpu: float = 0.0
    failure: str = ""


class _Task(NamedTuple):
    """What one process does."""

    side: str
    place: Place
    number: int
    threads: int
    size: Mapping[str, int]
    together: Together


def _run_together(
    info: EngineInfo,
    server: Server,
    place: Place,
    size: Mapping[str, int],
    together: Together,
) -> dict[str, float]:
    context = get_context("spawn")
    count = size["processes"]
    barrier, answers = context.Barrier(count + 1), context.Queue()
    tasks = [
        _Task(info.name, place, number, size["threads"], size, together) for number in range(count)
    ]
    workers = [context.Process(target=_worker, args=(task, barrier, answers)) for task in tasks]
    for worker in workers:
        worker.start()
    used = _server_cpu(server, barrier)
    found: list[_Done] = [answers.get(timeout=PATIENCE) for _ in workers]
    for worker in workers:
        worker.join(PATIENCE)
    failures = [one.failure for one in found if one.failure]
    assert not failures, failures[0]
    return _together_figures(server, found, used)


def _server_cpu(server: Server, barrier: Barrier) -> float:
    """What the server used between the start of the clients and their end.

    All wait while it is read, because on a busy machine who reads it may come late.
    """
    try:
        barrier.wait(PATIENCE)
        before = server.cpu_seconds()
        barrier.wait(PATIENCE)
        barrier.wait(PATIENCE)
        used = server.cpu_seconds() - before
        barrier.wait(PATIENCE)
        return used
    except BrokenBarrierError:  # A client has failed, and says how.
        return 0.0


def _together_figures(server: Server, found: list[_Done], used: float) -> dict[str, float]:
    each = [commits for one in found for commits in one.commits]
    walls = [wall for one in found for wall in one.walls]
    commits = sum(each)
    figures = {
        "rate_together": commits / max(one.took for one in found),
        "wall_together_ms": median(walls) * 1e3,
        "client_together_ms": sum(one.cpu for one in found) / commits * 1e3,
        "fairness": min(each) / max(each),
    }
    if server.serves:
        figures["server_together_ms"] = used / commits * 1e3
    return figures


def _worker(task: _Task, barrier: Barrier, answers: Queue[Any]) -> None:
    try:
        answers.put(_commit_for(task, barrier))
    except BaseException as failure:
        barrier.abort()
        answers.put(_Done(failure=f"process {task.number}: {failure!r}"))


def _commit_for(task: _Task, barrier: Barrier) -> _Done:
    info, seconds = engines()[task.side], task.size["together_seconds"]
    with closing(opened(info, _place(task, 0))) as first:
        others = [first.another(_place(task, at).branch) for at in range(1, task.threads)]
        runs = [_Run(client, _work(task, at)) for at, client in enumerate([first, *others])]
        barrier.wait(PATIENCE)
        barrier.wait(PATIENCE)
        began, cpu = time.monotonic(), time.process_time()
        threads = [Thread(target=run.until, args=(began + seconds,)) for run in runs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took, cpu = time.monotonic() - began, time.process_time() - cpu
        barrier.wait(PATIENCE)  # Closing costs too, so nobody does it while others are measured.
        barrier.wait(PATIENCE)
    _check(info, task, runs)
    walls = tuple(wall for run in runs for wall in run.walls)
    return _Done(tuple(len(run.walls) for run in runs), walls, took, cpu)


def _place(task: _Task, at: int) -> Place:
    return replace(task.place, branch=f"client-{_number(task, at)}")


def _number(task: _Task, at: int) -> int:
    return task.number * task.threads + at


def _work(task: _Task, at: int) -> Work:
    return task.together(task.size, _number(task, at))


class _Run:
    """One client, its work, and how long each commit took."""

    def __init__(self, client: Client, work: Work) -> None:
        self.work, self.walls = work, list[float]()
        self.failure: BaseException | None = None
        self._client, self._steps = client, work.steps()
        work.begin(client)
        next(self._steps)(client)  # Connections and prepared statements.

    def until(self, ends: float) -> None:
        """Commit until a time."""
        try:
            while time.monotonic() < ends:
                step = next(self._steps)
                began = time.perf_counter()
                step(self._client)
                self.walls.append(time.perf_counter() - began)
        except BaseException as failure:
            self.failure = failure


def _check(info: EngineInfo, task: _Task, runs: list[_Run]) -> None:
    for run in runs:
        if run.failure:
            raise run.failure
    with closing(opened(info, _place(task, 0))) as first:
        for at, run in enumerate(runs):
            client = first.another(_place(task, at).branch) if at else first
            run.work.check(client)
