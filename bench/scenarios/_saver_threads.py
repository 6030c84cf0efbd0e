"""Several threads of a graph run at once, in 16 threads of one process, on one server."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from threading import Barrier, Thread
from typing import TYPE_CHECKING, Any

from bench._clock import own_peak_bytes
from bench._model import EngineInfo, Measured, Metric
from bench.engines.savers import saver
from bench.scenarios import _savers as savers
from bench.scenarios._savers import Opened, options

if TYPE_CHECKING:
    from bench._graphs import Loop

PATIENCE = 300.0
METRICS = (
    Metric("rate", "supersteps", "1/s", 0),
    Metric("client_ms", "CPU of the client per superstep", "ms", 3),
    Metric("server_ms", "CPU of the server per superstep", "ms", 3),
    Metric("stored_kb", "stored per superstep", "KB", 2),
    Metric("slowest", "slowest / fastest thread", "x"),
    savers.RSS,
)
NOTES = (
    "16 threads of one process run a graph each with a thread id of its own and take the same "
    'number of steps in one invoke, durability="sync", after the history was made. '
    "They share one saver; PostgresSaver is shown on a pool, which it locks for each call, and "
    "with a saver and a connection for each thread, which a program has to arrange for itself.",
    "Without a checkpointer is what LangGraph itself can do in one interpreter.",
)

Make = Callable[[Mapping[str, int], int], "Loop"]
"""The n-th graph, which begins with its history."""


def together(make: Make, info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Make the histories, run all threads at once, and check what each left."""
    with savers.opened(info) as found:
        runs = [_Run(found, make(size, number), number) for number in range(size["threads"])]
        for run in runs:
            run.prepare()
        before = found.server.stored_bytes() if found.server.serves else 0
        figures = _all_at_once(found, runs)
        found.side.close()
        if found.server.serves:
            figures["stored_kb"] = (found.server.stored_bytes() - before) / _steps(runs) / 1e3
        _check(info, found, runs)
    return Measured(figures)


class _Run:
    """One thread with its graph."""

    def __init__(self, found: Opened, loop: Loop, number: int) -> None:
        self.loop, self.config = loop, loop.config(f"thread-{number}")
        self._checkpointer: Any = found.side.checkpointer()
        self._graph = loop.compiled(self._checkpointer)
        self.values: Any = None
        self.began = self.ended = 0.0
        self.failure: BaseException | None = None

    def prepare(self) -> None:
        """Make the history, so that the first step is next."""
        if self._checkpointer:
            self._graph.update_state(self.config, self.loop.first(), as_node="work")

    def run(self, barrier: Barrier) -> None:
        """Wait for the others; then take the steps."""
        told = options(self._checkpointer, "sync")
        given = None if self._checkpointer else self.loop.first()
        barrier.wait(PATIENCE)
        barrier.wait(PATIENCE)
        try:
            self.began = time.perf_counter()
            self.values = self._graph.invoke(given, self.config, **told)
            self.ended = time.perf_counter()
        except BaseException as failure:
            self.failure = failure
        barrier.wait(PATIENCE)


def _all_at_once(found: Opened, runs: list[_Run]) -> dict[str, float]:
    barrier = Barrier(len(runs) + 1)
    threads = [Thread(target=run.run, args=(barrier,)) for run in runs]
    for thread in threads:
        thread.start()
    barrier.wait(PATIENCE)
    server, client = found.server.cpu_seconds(), time.process_time()
    barrier.wait(PATIENCE)
    barrier.wait(PATIENCE)
    client, server = time.process_time() - client, found.server.cpu_seconds() - server
    for thread in threads:
        thread.join()
    failures = [run.failure for run in runs if run.failure]
    if failures:
        raise failures[0]
    took = [run.ended - run.began for run in runs]
    figures = {
        "rate": _steps(runs) / (max(run.ended for run in runs) - min(run.began for run in runs)),
        "client_ms": client / _steps(runs) * 1e3,
        "slowest": max(took) / min(took),
        "rss_mb": own_peak_bytes() / 1e6,
    }
    if found.server.serves:
        figures["server_ms"] = server / _steps(runs) * 1e3
    return figures


def _steps(runs: list[_Run]) -> int:
    return sum(run.loop.steps for run in runs)


def _check(info: EngineInfo, found: Opened, runs: list[_Run]) -> None:
    side = saver(info.open(found.place))
    checkpointer = side.checkpointer()
    for run in runs:
        graph = run.loop.compiled(checkpointer)
        values = graph.get_state(run.config).values if checkpointer else run.values
        run.loop.check(values)
    side.close()
