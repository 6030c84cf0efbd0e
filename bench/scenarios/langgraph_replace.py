"""Documents of which each step replaces one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bench._model import EngineInfo, Measured, Scenario, Target
from bench.scenarios import _savers as savers
from bench.scenarios._sides import EVERY_SAVER, OUR_SAVER

if TYPE_CHECKING:
    from bench._graphs import Loop

_NAME = "langgraph-replace"


def _loop(size: Mapping[str, int]) -> Loop:
    from bench._graphs import Replacing

    return Replacing(size["steps"], size["documents"])


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """The first step loads the documents, each other one replaces one of them."""
    return savers.steps(_NAME, _loop, "sync", info, size)


SCENARIO = Scenario(
    name=_NAME,
    title="5 MB of documents in a dict; each of 200 steps of one invoke replaces one of them, "
    'durability="sync"',
    run=run,
    engines=EVERY_SAVER,
    metrics=savers.STEPS,
    size={"documents": 500, "steps": 200},
    quick={"documents": 20, "steps": 20},
    targets=(Target("stored_mb", 10.0, "bytes of all steps", side=OUR_SAVER),),
    notes=(savers.durable_note(), savers.ADDED_NOTE),
    order=520,
    repeat=1,
    timeout=900,
)
