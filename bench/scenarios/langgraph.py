"""LangGraph's checkpointers in graphs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from bench._apart import apart
from bench._clock import Stopwatch, folder_bytes, own_peak_bytes
from bench._history import listed
from bench._model import EngineInfo, Measured, Metric, Place, Scenario, Target
from bench.engines.graphs import graph_side
from bench.scenarios import savers
from bench.scenarios._sides import (
    DURABLE_SAVERS,
    EVERY_GRAPH,
    EVERY_SAVER,
    NO_SAVER,
    OUR_GRAPH,
    OUR_SAVER,
    OUR_SAVER_SERVED,
    PEER_GRAPH,
    PLAIN_GRAPH,
    SAVER_DELTA,
    SAVER_POOL,
    SAVER_POSTGRES,
    SAVER_SQLITE,
)

_NAME_CHAT = "langgraph-chat"


_NAME_CHAT_ASYNC = "langgraph-chat-async"


if TYPE_CHECKING:
    from bench._graphs import Loop

_NAME_DOCUMENTS = "langgraph-documents"


def _loop_documents(size: Mapping[str, int]) -> Loop:
    from bench._graphs import Counting

    return Counting(size["steps"], size["documents"])


def run_documents(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """The first step loads the documents, each step counts."""
    return savers.steps(_NAME_DOCUMENTS, _loop_documents, "sync", info, size)


def run_history(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Take the steps here, and list them in a fresh process."""
    from bench._graphs import Talking

    steps = size["steps"]
    with savers.opened(info) as found:
        loop, side, place = Talking(steps), found.side, found.place
        graph = loop.compiled(side.checkpointer(), side.delta)
        graph.invoke(loop.first(), loop.config(), durability="async")
        if not side.lasting:
            note = "listed by the process that took the steps, because nobody else can"
            return Measured(listed(side, steps), [note])
        side.close()
        told = (info.name, str(place.folder), place.url, str(steps))
        return Measured(apart("bench._history", *told))


_PUBLISHED = 0.728
"""By how much AgentRef's page says that it lowers the peak of LangGraph alone."""


def run_memory(info: EngineInfo, size: Mapping[str, int]) -> Measured:
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


if TYPE_CHECKING:
    from bench._graphs import Loop

_NAME_REPLACE = "langgraph-replace"


def _loop_replace(size: Mapping[str, int]) -> Loop:
    from bench._graphs import Replacing

    return Replacing(size["steps"], size["documents"])


def run_replace(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """The first step loads the documents, each other one replaces one of them."""
    return savers.steps(_NAME_REPLACE, _loop_replace, "sync", info, size)


if TYPE_CHECKING:
    from bench._graphs import Loop


def _loop_threads(size: Mapping[str, int], number: int) -> Loop:
    from bench._graphs import Talking

    return Talking(size["steps"], seed=number, history=size["history"])


def run_threads(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """All threads at once."""
    return savers.together(_loop_threads, info, size)


if TYPE_CHECKING:
    from bench._graphs import Loop


def _loop_threads_small(size: Mapping[str, int], number: int) -> Loop:
    from bench._graphs import Stepping

    return Stepping(size["steps"], seed=number)


def run_threads_small(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """All threads at once."""
    return savers.together(_loop_threads_small, info, size)


SCENARIOS = (
    Scenario(
        name=_NAME_CHAT,
        title='A graph takes 2,000 steps of one message of 1 KB in one invoke, durability="sync"',
        run=savers.chat(_NAME_CHAT, "sync"),
        engines=EVERY_SAVER,
        metrics=savers.METRICS_CHATS,
        size=savers.SIZE_CHATS,
        quick=savers.QUICK_CHATS,
        targets=(
            Target("stored_mb", 6.0, "bytes of all steps", side=OUR_SAVER),
            Target(
                "added_s",
                3.0,
                "CPU added, times below the best durable saver of the same graph",
                "at least",
                side=OUR_SAVER,
                under=DURABLE_SAVERS,
            ),
        ),
        notes=(savers.durable_note(), savers.ADDED_NOTE),
        order=500,
        repeat=1,
        timeout=1200,
    ),
    Scenario(
        name=_NAME_CHAT_ASYNC,
        title='A graph takes 2,000 steps of one message of 1 KB in one invoke, durability="async"',
        run=savers.chat(_NAME_CHAT_ASYNC, "async"),
        engines=EVERY_SAVER,
        metrics=savers.METRICS_CHATS,
        size=savers.SIZE_CHATS,
        quick=savers.QUICK_CHATS,
        notes=(
            "For information. Checkpoints are written behind the steps, and invoke returns when "
            "all are written; how far they were behind is the time from the last node to its "
            "return.",
            savers.ADDED_NOTE,
        ),
        order=580,
        repeat=1,
        timeout=1200,
    ),
    Scenario(
        name=_NAME_DOCUMENTS,
        title="5 MB of documents are loaded once, and a counter changes in 200 steps of one "
        "invoke, "
        'durability="sync"',
        run=run_documents,
        engines=EVERY_SAVER,
        metrics=savers.STEPS,
        size={"documents": 500, "steps": 200},
        quick={"documents": 20, "steps": 20},
        targets=(
            Target("stored_mb", 6.0, "bytes of all steps", side=OUR_SAVER),
            Target(
                "wall_s",
                10.0,
                "wall, times below SqliteSaver",
                "at least",
                side=OUR_SAVER,
                under=(SAVER_SQLITE,),
            ),
        ),
        notes=(savers.durable_note(), savers.ADDED_NOTE),
        order=510,
        repeat=3,
        timeout=900,
    ),
    Scenario(
        name="langgraph-history",
        title="get_state_history of 500 steps of one message of 1 KB, in a fresh process",
        run=run_history,
        engines=tuple(name for name in EVERY_SAVER if name != NO_SAVER),
        metrics=(
            Metric("history_s", "wall", "s", 3),
            Metric("history_cpu_s", "CPU of the client", "s", 3),
            Metric("more_mb", "peak memory above that before", "MB", 1),
            Metric("last_s", "wall, with the last message of each looked at", "s", 3),
            Metric("read_s", "wall, with every message of each looked at", "s", 3),
            Metric("read_mb", "peak memory after that", "MB", 1),
            Metric("snapshots", "snapshots", digits=0),
        ),
        size={"steps": 500},
        quick={"steps": 40},
        targets=(
            Target(
                "history_s",
                30.0,
                "wall, times below SqliteSaver",
                "at least",
                side=OUR_SAVER,
                under=(SAVER_SQLITE,),
            ),
            Target("more_mb", 30.0, "more memory", side=OUR_SAVER),
        ),
        notes=(
            "The process opens the saver, compiles the graph and then lists; all snapshots are "
            "held. A saver may hand out values that are read when they are looked at, so the "
            "time is also given with the last message, and with every message, of each snapshot "
            "looked at.",
        ),
        order=530,
        repeat=3,
    ),
    Scenario(
        name="langgraph-memory",
        title="a workflow of 14 rounds: pages are fetched, cut into passages, ranked, written up "
        "and checked; 34 MB of passages at the end",
        run=run_memory,
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
            Target("cpu_s", 1.0, "CPU, of AgentRef's", side=OUR_GRAPH, over=(PEER_GRAPH,)),
        ),
        notes=(
            "AgentRef's page names a deterministic workflow whose output keeps its hash, and gives "
            "703.6 MiB for LangGraph alone and 191.6 MiB with AgentRef, 72.8 % less, as medians "
            "of 3 runs. Its code is not published; this workflow was made to the same "
            "description and size. The hash of the end is compared with one that was computed "
            "without a graph.",
            "All sides have LangGraph's InMemorySaver, which holds every version of what is in the "
            "state. The peak is that of the whole process, with the interpreter and LangGraph.",
        ),
        order=570,
        repeat=3,
        timeout=900,
    ),
    Scenario(
        name=_NAME_REPLACE,
        title="5 MB of documents in a dict; each of 200 steps of one invoke replaces one of them, "
        'durability="sync"',
        run=run_replace,
        engines=EVERY_SAVER,
        metrics=savers.STEPS,
        size={"documents": 500, "steps": 200},
        quick={"documents": 20, "steps": 20},
        targets=(Target("stored_mb", 10.0, "bytes of all steps", side=OUR_SAVER),),
        notes=(savers.durable_note(), savers.ADDED_NOTE),
        order=520,
        repeat=1,
        timeout=900,
    ),
    Scenario(
        name="langgraph-threads",
        title="16 threads of a graph at once on one Postgres, each with 500 messages of history",
        run=run_threads,
        engines=(OUR_SAVER_SERVED, NO_SAVER, SAVER_POSTGRES, SAVER_POOL),
        metrics=savers.METRICS_THREADS,
        size={"threads": 16, "history": 500, "steps": 50},
        quick={"threads": 4, "history": 20, "steps": 5},
        targets=(
            Target(
                "rate",
                5.0,
                "supersteps, times those of one PostgresSaver for all threads, as ours is",
                "at least",
                side=OUR_SAVER_SERVED,
                over=(SAVER_POOL,),
            ),
            Target(
                "rate",
                5.0,
                "the same, with a PostgresSaver and a connection for each thread",
                "at least",
                side=OUR_SAVER_SERVED,
                over=(SAVER_POSTGRES,),
            ),
        ),
        notes=savers.NOTES_THREADS,
        order=540,
        repeat=3,
    ),
    Scenario(
        name="langgraph-threads-small",
        title="16 threads of a graph at once on one Postgres, with a state of 600 bytes",
        run=run_threads_small,
        engines=(OUR_SAVER_SERVED, NO_SAVER, SAVER_POSTGRES, SAVER_POOL),
        metrics=savers.METRICS_THREADS,
        size={"threads": 16, "steps": 150},
        quick={"threads": 4, "steps": 10},
        targets=(
            Target(
                "rate",
                1.5,
                "supersteps, times those of one PostgresSaver for all threads, as ours is",
                "at least",
                side=OUR_SAVER_SERVED,
                over=(SAVER_POOL,),
            ),
            Target(
                "rate",
                1.5,
                "the same, with a PostgresSaver and a connection for each thread",
                "at least",
                side=OUR_SAVER_SERVED,
                over=(SAVER_POSTGRES,),
            ),
        ),
        notes=savers.NOTES_THREADS,
        order=550,
        repeat=3,
    ),
    Scenario(
        name="langgraph-turns",
        title='A chat of 500 turns of two messages, one invoke each, durability="async"',
        run=savers.turns("async"),
        engines=EVERY_SAVER,
        metrics=savers.METRICS_TURNS,
        size=savers.SIZE_TURNS,
        quick=savers.QUICK_TURNS,
        targets=(
            Target("stored_mb", 6.0, "bytes of all turns", side=OUR_SAVER),
            Target(
                "growth_us",
                0.5,
                "growth of a turn over that with DeltaChannel",
                side=OUR_SAVER,
                over=(SAVER_DELTA,),
            ),
        ),
        notes=savers.NOTES_TURNS,
        order=560,
        repeat=3,
    ),
    Scenario(
        name="langgraph-turns-sync",
        title='A chat of 500 turns of two messages, one invoke each, durability="sync"',
        run=savers.turns("sync"),
        engines=(OUR_SAVER, OUR_SAVER_SERVED, NO_SAVER, SAVER_DELTA),
        metrics=savers.METRICS_TURNS,
        size=savers.SIZE_TURNS,
        quick=savers.QUICK_TURNS,
        notes=("For information. " + savers.NOTES_TURNS[0], *savers.NOTES_TURNS[1:]),
        order=590,
        repeat=1,
    ),
)
