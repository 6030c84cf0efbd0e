"""How much memory a workflow of large values takes in each framework, alone and with adapters."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from bench._apart import elsewhere
from bench._clock import Stopwatch, folder_bytes, own_peak_bytes, resident_bytes
from bench._model import EngineInfo, Measured, Metric, Place, Scenario, Target
from bench._servers import Server, running

if TYPE_CHECKING:
    from bench.frameworks.memory import Workload


_INTERVAL = 0.1
"""Seconds between two looks at the memory of a server."""


def expected(framework: str, size: Mapping[str, int]) -> list[str]:
    """What the work must end with, computed without a framework's help."""
    found: list[str] = import_module(f"bench.frameworks.memory_{framework}").digests(size)
    return found


def run(framework: str, info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Run the workflow here, and compute what it must end with in another process."""
    with TemporaryDirectory() as name:
        side: Any = info.open(Place(Path(name)))
        workload: Workload = side
        workload.prepare(size)
        before, watch = own_peak_bytes(), Stopwatch()
        found = watch(workload.run)
        peak = own_peak_bytes()
        workload.close()
        kept = folder_bytes(Path(name))
    assert found == elsewhere(expected, framework, dict(size)), "another end"
    figures = {
        "rss_mb": peak / 1e6,
        "before_mb": before / 1e6,
        "cpu_s": watch.cpu[0],
        "folder_mb": kept / 1e6,
    }
    return Measured(figures)


class _Watched:
    """The most memory that a server had, looked at in short intervals by a thread."""

    def __init__(self, server: Server) -> None:
        self._server, self._stop = server, threading.Event()
        self.peak = server.memory_bytes()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._stop.wait(_INTERVAL):
            self.peak = max(self.peak, self._server.memory_bytes())

    def end(self) -> int:
        """Stop looking, and say how much it was."""
        self._stop.set()
        self._thread.join()
        return self.peak


def run_served(framework: str, info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Run the workload several times at once on a server, whose memory is watched."""
    with TemporaryDirectory() as name, running(info.server, Path(name)) as server:
        side: Any = info.open(Place(Path(name), url=server.url))
        workload: Workload = side
        workload.prepare(size)
        idle, served, spent = resident_bytes(), server.memory_bytes(), server.cpu_seconds()
        watched, watch = _Watched(server), Stopwatch()
        found = watch(workload.run)
        most, peak = watched.end(), own_peak_bytes()
        spent = server.cpu_seconds() - spent
        workload.close()
        kept = server.stored_bytes()
    assert found == elsewhere(expected, framework, dict(size)), "another end"
    figures = {
        "rss_mb": peak / 1e6,
        "before_mb": idle / 1e6,
        "more_mb": (peak - idle) / 1e6,
        "server_mb": most / 1e6,
        "server_more_mb": (most - served) / 1e6,
        "cpu_s": watch.cpu[0],
        "server_s": spent,
        "folder_mb": kept / 1e6,
        "done": len(found),
    }
    return Measured(figures)


def _scenario(
    at: int, framework: str, title: str, size: Mapping[str, int], published: float, note: str
) -> Scenario:
    ours, alone = f"{framework}-memory-ropewalk", f"{framework}-memory-alone"
    return Scenario(
        name=f"frameworks-memory-{framework}",
        title=title,
        run=partial(run, framework),
        engines=(ours, alone, f"{framework}-memory-agentref"),
        metrics=(
            Metric("rss_mb", "peak memory of the process", "MB", 1),
            Metric("before_mb", "before the workflow", "MB", 1),
            Metric("cpu_s", "CPU", "s", 2),
            Metric("folder_mb", "folder", "MB", 1),
        ),
        size=size,
        quick={"rounds": 3, "pages": 4},
        targets=(
            Target(
                "rss_mb",
                round(1 - published, 3),
                "peak memory, of that of the framework alone",
                side=ours,
                over=(alone,),
            ),
        ),
        notes=(
            f"{note} Its code is not published; this workflow was made to the same description "
            "and size. The hash of the end is compared with one that was computed in another "
            "process.",
        ),
        order=750 + at,
        repeat=3,
        timeout=600,
    )


_DEEP, _DEEP_ALONE = "deepagents-memory-ropewalk", "deepagents-memory-alone"

SCENARIOS = (
    _scenario(
        0,
        "llamaindex",
        "LlamaIndex: pages are fetched, cut into passages, ranked, written up and checked; the "
        "context is dumped after each step",
        {"rounds": 9, "pages": 42},
        0.745,
        "AgentRef's page names a deterministic workflow whose output keeps its hash, and gives "
        "902.5 MiB for LlamaIndex alone and 229.8 MiB with AgentRef, 74.5 % less.",
    ),
    _scenario(
        1,
        "autogen",
        "AutoGen: an agent whose tool returns 2.4 MB of pages in each turn; its state is saved "
        "after each",
        {"rounds": 20, "pages": 40},
        0.631,
        "AgentRef's page names a deterministic workflow whose output keeps its hash, and gives "
        "659.1 MiB for AutoGen alone and 243.3 MiB with AgentRef, 63.1 % less.",
    ),
    Scenario(
        name="frameworks-memory-deepagents",
        title="Deep Agents: ten runs at once on one Postgres; each gathers 2 MB of documents in "
        "each of 8 rounds, and reports on all of them",
        run=partial(run_served, "deepagents"),
        engines=(_DEEP, _DEEP_ALONE, "deepagents-memory-agentref"),
        metrics=(
            Metric("done", "runs completed", "", 0),
            Metric("rss_mb", "peak memory of the process", "MB", 0),
            Metric("before_mb", "idle", "MB", 0),
            Metric("more_mb", "growth", "MB", 0),
            Metric("server_mb", "peak memory of Postgres", "MB", 0),
            Metric("server_more_mb", "its growth", "MB", 0),
            Metric("cpu_s", "CPU", "s", 1),
            Metric("server_s", "CPU of Postgres", "s", 1),
            Metric("folder_mb", "database", "MB", 0),
        ),
        size={"runs": 10, "rounds": 8, "pages": 40},
        quick={"runs": 3, "rounds": 2, "pages": 4},
        targets=(
            Target("rss_mb", 0.743, "peak memory, of that alone", side=_DEEP, over=(_DEEP_ALONE,)),
            Target("more_mb", 0.66, "growth, of that alone", side=_DEEP, over=(_DEEP_ALONE,)),
            Target("server_mb", 0.644, "Postgres, of that alone", side=_DEEP, over=(_DEEP_ALONE,)),
            Target(
                "server_more_mb",
                0.59,
                "growth of Postgres, of that alone",
                side=_DEEP,
                over=(_DEEP_ALONE,),
            ),
        ),
        notes=(
            "AgentRef's page names a real workflow with 10 runs at once: a peak of 1.056 GiB alone "
            "and 803.4 MiB with AgentRef, 25.7 % less, growth 34.0 %, Postgres 35.6 % and its "
            "growth 41.0 % less. That workflow is not published; this one has its shape. All runs "
            "must complete, and end with a hash that was computed in another process.",
            "The memory of Postgres is that of all its processes, what they share counted once.",
        ),
        order=760,
        repeat=3,
        timeout=600,
    ),
)
