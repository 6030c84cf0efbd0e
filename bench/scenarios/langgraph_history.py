"""The history of a chat is listed by a process that does nothing else."""

from __future__ import annotations

from collections.abc import Mapping

from bench._apart import apart
from bench._history import listed
from bench._model import EngineInfo, Measured, Metric, Scenario, Target
from bench.scenarios import _savers as savers
from bench.scenarios._sides import EVERY_SAVER, NO_SAVER, OUR_SAVER, SAVER_SQLITE


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
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


SCENARIO = Scenario(
    name="langgraph-history",
    title="get_state_history of 500 steps of one message of 1 KB, in a fresh process",
    run=run,
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
        "The process opens the saver, compiles the graph and then lists; all snapshots are held. "
        "A saver may hand out values that are read when they are looked at, so the time is also "
        "given with the last message, and with every message, of each snapshot looked at.",
    ),
    order=530,
    repeat=3,
)
