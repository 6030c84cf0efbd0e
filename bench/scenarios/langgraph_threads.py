"""16 chats with a history of 500 messages take steps at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bench._model import EngineInfo, Measured, Scenario, Target
from bench.scenarios import _saver_threads as threads
from bench.scenarios._sides import NO_SAVER, OUR_SAVER_SERVED, SAVER_POOL, SAVER_POSTGRES

if TYPE_CHECKING:
    from bench._graphs import Loop


def _loop(size: Mapping[str, int], number: int) -> Loop:
    from bench._graphs import Talking

    return Talking(size["steps"], seed=number, history=size["history"])


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """All threads at once."""
    return threads.together(_loop, info, size)


SCENARIO = Scenario(
    name="langgraph-threads",
    title="16 threads of a graph at once on one Postgres, each with 500 messages of history",
    run=run,
    engines=(OUR_SAVER_SERVED, NO_SAVER, SAVER_POSTGRES, SAVER_POOL),
    metrics=threads.METRICS,
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
    notes=threads.NOTES,
    order=540,
    repeat=3,
)
