"""The benchmark of a workflow's memory runs, small, and all sides come to the same end."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from bench import _registry as registry
from bench import _unit as unit
from bench._model import Place
from bench._research import Research
from bench.scenarios._sides import EVERY_GRAPH, PEER_GRAPH

SIDES = [one for one in EVERY_GRAPH if one != PEER_GRAPH or find_spec("agentref")]


@pytest.mark.parametrize("side", SIDES)
def test_a_workflow_is_measured(side: str) -> None:
    found = unit.measure("langgraph-memory", side, {"rounds": 2, "pages": 2})
    known = {metric.key for metric in registry.scenarios()["langgraph-memory"].metrics}

    assert known <= found["figures"].keys()
    # So little work may end with less than there was: something before it was let go.
    assert min(found["figures"]["rss_mb"], found["figures"]["before_mb"]) > 0


@pytest.mark.parametrize("side", SIDES)
def test_a_side_keeps_a_value(side: str, tmp_path: Path) -> None:
    engine = registry.engines()[side].open(Place(tmp_path))
    engine.commit({"text": "x" * 10_000})

    assert engine.read() == {"text": "x" * 10_000}
    engine.close()


def test_the_end_depends_on_the_work() -> None:
    assert Research(2, 2).digest() == Research(2, 2).digest() != Research(2, 3).digest()
