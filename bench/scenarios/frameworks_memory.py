"""How much memory a workflow of large values takes in each framework, alone and with adapters."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from bench._apart import elsewhere
from bench._clock import Stopwatch, folder_bytes, own_peak_bytes
from bench._model import EngineInfo, Measured, Metric, Place, Scenario, Target

if TYPE_CHECKING:
    from bench.frameworks.memory import Workload


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
)
