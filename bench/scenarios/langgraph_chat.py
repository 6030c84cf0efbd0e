"""A chat of 2,000 steps in one `invoke`; each checkpoint is durable before the next step."""

from __future__ import annotations

from bench._model import Scenario, Target
from bench.scenarios import _saver_chats as chats
from bench.scenarios import _savers as savers
from bench.scenarios._sides import DURABLE_SAVERS, EVERY_SAVER, OUR_SAVER

_NAME = "langgraph-chat"

SCENARIO = Scenario(
    name=_NAME,
    title='A graph takes 2,000 steps of one message of 1 KB in one invoke, durability="sync"',
    run=chats.chat(_NAME, "sync"),
    engines=EVERY_SAVER,
    metrics=chats.METRICS,
    size=chats.SIZE,
    quick=chats.QUICK,
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
)
