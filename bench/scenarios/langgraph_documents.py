"""Documents that are loaded once, and a counter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bench._model import EngineInfo, Measured, Scenario, Target
from bench.scenarios import _savers as savers
from bench.scenarios._sides import EVERY_SAVER, OUR_SAVER, SAVER_SQLITE

if TYPE_CHECKING:
    from bench._graphs import Loop

_NAME = "langgraph-documents"


def _loop(size: Mapping[str, int]) -> Loop:
    from bench._graphs import Counting

    return Counting(size["steps"], size["documents"])


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """The first step loads the documents, each step counts."""
    return savers.steps(_NAME, _loop, "sync", info, size)


SCENARIO = Scenario(
    name=_NAME,
    title="5 MB of documents are loaded once, and a counter changes in 200 steps of one invoke, "
    'durability="sync"',
    run=run,
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
)
