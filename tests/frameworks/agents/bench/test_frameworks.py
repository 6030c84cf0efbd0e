"""Every side of the conversations of frameworks takes its turns, and they read back."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

from bench import _registry as registry
from bench import _unit as unit

SMALL = {"turns": 6, "sessions": 2}
SIDES = [
    (scenario.name, side)
    for scenario in registry.scenarios().values()
    if "sessions" in scenario.size
    for side in scenario.engines
    if not side.startswith("llamaindex") or find_spec("ropewalk.adapters.llamaindex")
]


@pytest.mark.parametrize(("scenario", "side"), SIDES)
def test_a_side_takes_turns_that_read_back(scenario: str, side: str) -> None:
    found: dict[str, Any] = unit.measure(scenario, side, SMALL)["figures"]
    known = {metric.key for metric in registry.scenarios()[scenario].metrics}

    assert known - found.keys() <= ({"stored_x"} if side.endswith("-alone") else set())
    assert min(found["cpu_s"], found["first_ms"], found["last_ms"], found["new_ms"]) > 0
