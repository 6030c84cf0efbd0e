"""A chat of 500 turns at the durability that LangGraph has by itself."""

from __future__ import annotations

from bench._model import Scenario, Target
from bench.scenarios import _saver_turns as turns
from bench.scenarios._sides import EVERY_SAVER, OUR_SAVER, SAVER_DELTA

SCENARIO = Scenario(
    name="langgraph-turns",
    title='A chat of 500 turns of two messages, one invoke each, durability="async"',
    run=turns.turns("async"),
    engines=EVERY_SAVER,
    metrics=turns.METRICS,
    size=turns.SIZE,
    quick=turns.QUICK,
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
    notes=turns.NOTES,
    order=560,
    repeat=3,
)
