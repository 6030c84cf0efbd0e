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
]


@pytest.mark.parametrize(("scenario", "side"), SIDES)
def test_a_side_takes_turns_that_read_back(scenario: str, side: str) -> None:
    found: dict[str, Any] = unit.measure(scenario, side, SMALL)["figures"]
    known = {metric.key for metric in registry.scenarios()[scenario].metrics}

    assert known - found.keys() <= ({"stored_x"} if side.endswith("-alone") else set())
    assert min(found["cpu_s"], found["first_ms"], found["last_ms"], found["new_ms"]) > 0


PEERS = {f"{framework}-memory-agentref": "agentref" for framework in ("llamaindex", "autogen")}
"""What is in the benchmark's own environment, not necessarily in that of the tests."""
WORKLOADS = [
    (f"frameworks-memory-{framework}", side)
    for framework in ("llamaindex", "autogen")
    for side in registry.scenarios()[f"frameworks-memory-{framework}"].engines
    if find_spec(PEERS.get(side, "ropewalk"))
]


@pytest.mark.parametrize(("scenario", "side"), WORKLOADS)
def test_a_workload_ends_with_the_hash_that_it_must(scenario: str, side: str) -> None:
    size = {**registry.scenarios()[scenario].quick, "rounds": 2, "pages": 2}
    found: dict[str, Any] = unit.measure(scenario, side, size)["figures"]

    assert {metric.key for metric in registry.scenarios()[scenario].metrics} <= found.keys()
