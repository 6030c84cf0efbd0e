"""A workflow of large values: how much memory its process takes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from bench._apart import apart
from bench._clock import Stopwatch, folder_bytes, own_peak_bytes
from bench._model import EngineInfo, Measured, Metric, Place, Scenario, Target
from bench.engines.graphs import graph_side
from bench.scenarios._sides import EVERY_GRAPH, OUR_GRAPH, PEER_GRAPH, PLAIN_GRAPH

_PUBLISHED = 0.728
"""By how much AgentRef's page says that it lowers the peak of LangGraph alone."""


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Run the workflow here, and compute what it must say in another process."""
    from bench._research import LARGE, SMALL, THREAD, Research

    work = Research(size["rounds"], size["pages"])
    with TemporaryDirectory() as name:
        side, watch = graph_side(info.open(Place(Path(name)))), Stopwatch()
        graph = side.compiled(work.graph, LARGE, SMALL)
        before = own_peak_bytes()
        found = watch(lambda: graph.invoke(work.first(), THREAD))["digest"]
        peak = own_peak_bytes()
        side.close()
        kept = folder_bytes(Path(name))
    assert found == apart("bench._research", str(work.rounds), str(work.pages)), "another end"
    figures = {
        "rss_mb": peak / 1e6,
        "before_mb": before / 1e6,
        "cpu_s": watch.cpu[0],
        "wall_s": watch.wall[0],
        "folder_mb": kept / 1e6,
    }
    return Measured(figures)


SCENARIO = Scenario(
    name="langgraph-memory",
    title="a workflow of 14 rounds: pages are fetched, cut into passages, ranked, written up and "
    "checked; 34 MB of passages at the end",
    run=run,
    engines=EVERY_GRAPH,
    metrics=(
        Metric("rss_mb", "peak memory of the process", "MB", 1),
        Metric("before_mb", "before the workflow", "MB", 1),
        Metric("cpu_s", "CPU", "s", 1),
        Metric("wall_s", "wall", "s", 1),
        Metric("folder_mb", "folder", "MB", 1),
    ),
    size={"rounds": 14, "pages": 40},
    quick={"rounds": 3, "pages": 10},
    targets=(
        Target(
            "rss_mb",
            1 - _PUBLISHED,
            "peak memory, of that of LangGraph alone",
            side=OUR_GRAPH,
            over=(PLAIN_GRAPH,),
        ),
        Target("rss_mb", 1.0, "peak memory, of AgentRef's", side=OUR_GRAPH, over=(PEER_GRAPH,)),
    ),
    notes=(
        "AgentRef's page names a deterministic workflow whose output keeps its hash, and gives "
        "703.6 MiB for LangGraph alone and 191.6 MiB with AgentRef, 72.8 % less, as medians of 3 "
        "runs. Its code is not published; this workflow was made to the same description and "
        "size. The hash of the end is compared with one that was computed without a graph.",
        "All sides have LangGraph's InMemorySaver, which holds every version of what is in the "
        "state. The peak is that of the whole process, with the interpreter and LangGraph.",
    ),
    order=570,
    repeat=3,
    timeout=900,
)
