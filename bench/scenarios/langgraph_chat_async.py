"""The same chat, with checkpoints that are written behind the steps."""

from __future__ import annotations

from bench._model import Scenario
from bench.scenarios import _saver_chats as chats
from bench.scenarios import _savers as savers
from bench.scenarios._sides import EVERY_SAVER

_NAME = "langgraph-chat-async"

SCENARIO = Scenario(
    name=_NAME,
    title='A graph takes 2,000 steps of one message of 1 KB in one invoke, durability="async"',
    run=chats.chat(_NAME, "async"),
    engines=EVERY_SAVER,
    metrics=chats.METRICS,
    size=chats.SIZE,
    quick=chats.QUICK,
    notes=(
        "For information. Checkpoints are written behind the steps, and invoke returns when all "
        "are written; how far they were behind is the time from the last node to its return.",
        savers.ADDED_NOTE,
    ),
    order=580,
    repeat=1,
    timeout=1200,
)
