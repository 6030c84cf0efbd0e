"""The family `steps`. What needs LangGraph itself is tested beside it, in tests/frameworks."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from bench import _registry as registry
from bench import _unit as unit
from bench._interleaved import Turn, interleaved
from bench._model import EngineInfo
from bench.scenarios._sides import FILES, OURS_ON_DISK, STEPS_ON_DISK

STEPS = {name: one for name, one in registry.scenarios().items() if name.startswith("steps-")}
SMALL = {
    ("steps-bytes", STEPS_ON_DISK): {"steps": 20},
    ("steps-bytes", "timeline-files"): {"steps": 20},
    ("steps-commit", OURS_ON_DISK): {"steps": 50, "seconds": 60},
    ("steps-commit", FILES): {"steps": 50, "seconds": 60},
    ("steps-growth", STEPS_ON_DISK): {"steps": 200, "reads": 1},
    ("steps-memory", STEPS_ON_DISK): {"megabytes": 2, "steps": 2},
}


@pytest.mark.parametrize(("scenario", "side"), SMALL)
def test_a_unit_measures_the_path_of_a_step(scenario: str, side: str) -> None:
    found = unit.measure(scenario, side, SMALL[scenario, side])

    assert {metric.key for metric in STEPS[scenario].metrics} <= found["figures"].keys()


def test_all_sides_of_a_step_run_on_one_python() -> None:
    for scenario in STEPS.values():
        found = {one.environment for one in scenario.sides(registry.engines()).values()}

        assert found == {"python-3.12"}


def test_every_scenario_of_a_step_has_targets_that_need_no_other_side() -> None:
    for scenario in STEPS.values():
        assert scenario.targets
        assert all(not target.others for target in scenario.targets)


def taking_turns(info: EngineInfo, size: Mapping[str, int], turn: Turn) -> dict[str, float]:
    turn()
    for _ in range(size["blocks"]):
        turn()
    return {"blocks": size["blocks"]}


def failing(info: EngineInfo, size: Mapping[str, int], turn: Turn) -> dict[str, float]:
    turn()
    raise ValueError("it broke")


def test_sides_that_take_turns_give_their_figures() -> None:
    found = interleaved(taking_turns, ("pickle", "zstd"), {"blocks": 3})

    assert found == {"pickle": {"blocks": 3}, "zstd": {"blocks": 3}}


def test_a_side_that_fails_in_its_turn_is_named_with_the_reason() -> None:
    with pytest.raises(AssertionError, match=r"zstd: ValueError\('it broke'\)"):
        interleaved(failing, ("zstd",), {})
