"""Every scenario of `bench coherence` runs, small, with our sides and those of LangGraph."""

from __future__ import annotations

from typing import Any

import pytest

from bench import _registry as registry
from bench import _unit as unit
from bench.scenarios._sides import OUR_SHARED, SHARED_MEMORY, SHARED_POSTGRES

BLOCKS = {"blocks": 2}
AGENTS = {"agents": 6, "artifacts": 3, "operations": 5, "edits_percent": 40, "seconds": 60}
SMALL: dict[str, dict[str, int]] = {
    "coherence-get": BLOCKS,
    "coherence-get-fields": BLOCKS,
    "coherence-put": BLOCKS,
    "coherence-put-fields": BLOCKS,
    "coherence-async": BLOCKS,
    "coherence-readers": {"puts": 1, "seconds": 60},
    "coherence-contended": {"adds": 10, "seconds": 60},
    "coherence-agents-threads": AGENTS,
    "coherence-agents-tasks": AGENTS,
    "coherence-agents-apart": {**AGENTS, "processes": 2},
    "coherence-engines": {"calls": 3, "seconds": 60},
    "coherence-growth": {"artifacts": 20, "agents": 20, "versions": 20},
}
HERE = [
    (name, side)
    for name in SMALL
    for side in registry.scenarios()[name].engines
    if side in (OUR_SHARED[0], SHARED_MEMORY)
]
STRATEGIES = [("coherence-put", side) for side in OUR_SHARED[1:]]
SERVED = [
    ("coherence-agents-apart", "shared-sqlite"),
    ("coherence-engines", "shared-sqlite-lease"),
    ("coherence-engines", "shared-postgres"),
    ("coherence-engines", "shared-redis"),
    ("coherence-engines", SHARED_POSTGRES),
]


@pytest.mark.parametrize(("scenario", "side"), [*HERE, *STRATEGIES, *SERVED])
def test_a_unit_measures_what_agents_share(scenario: str, side: str) -> None:
    found: dict[str, Any] = unit.measure(scenario, side, SMALL[scenario])
    known = {metric.key for metric in registry.scenarios()[scenario].metrics}
    figures = found["figures"]

    assert {key for key in known - figures.keys() if not key.endswith("server_us")} == set()
    if side != SHARED_MEMORY:
        assert [key for key in figures if key.startswith(("lost", "errors")) and figures[key]] == []
