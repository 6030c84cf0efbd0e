"""The same chat, each checkpoint durable before the graph goes on."""

from __future__ import annotations

from bench._model import Scenario
from bench.scenarios import _saver_turns as turns
from bench.scenarios._sides import NO_SAVER, OUR_SAVER, OUR_SAVER_SERVED, SAVER_DELTA

SCENARIO = Scenario(
    name="langgraph-turns-sync",
    title='A chat of 500 turns of two messages, one invoke each, durability="sync"',
    run=turns.turns("sync"),
    engines=(OUR_SAVER, OUR_SAVER_SERVED, NO_SAVER, SAVER_DELTA),
    metrics=turns.METRICS,
    size=turns.SIZE,
    quick=turns.QUICK,
    notes=("For information. " + turns.NOTES[0], *turns.NOTES[1:]),
    order=590,
    repeat=1,
)
