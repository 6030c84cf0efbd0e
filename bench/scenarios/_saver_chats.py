"""A chat that takes steps in one `invoke`, at one durability."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from bench._model import EngineInfo, Measured, Metric, Run
from bench.scenarios import _savers as savers

if TYPE_CHECKING:
    from bench._graphs import Loop

SIZE = {"steps": 2000}
QUICK = {"steps": 100}
METRICS = (*savers.STEPS, Metric("grown", "stored / that of a quarter of the steps", "x"))


def _loop(size: Mapping[str, int]) -> Loop:
    from bench._graphs import Talking

    return Talking(size["steps"])


def _run(name: str, durability: str, info: EngineInfo, size: Mapping[str, int]) -> Measured:
    return savers.steps(name, _loop, durability, info, size, quarter=True)


def chat(name: str, durability: str) -> Run:
    """The work of a scenario."""
    return partial(_run, name, durability)
