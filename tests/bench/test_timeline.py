from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench import _registry as registry
from bench import _unit as unit
from bench._clock import Bounds
from bench._model import Place
from bench.engines.timelines import Steps
from bench.scenarios._sides import EVERY_STEPS, PEERS_STEPS, STEPS_ON_DISK

OWN = [name for name in EVERY_STEPS if name not in PEERS_STEPS]
SIZE = {"checkpoints": 40, "seconds": 60}


def opened(name: str, place: Place) -> Any:
    return registry.engines()[name].open(place)


@pytest.mark.parametrize("name", OWN)
def test_a_side_of_steps_shows_after_opening_what_was_saved_before(
    name: str, tmp_path: Path
) -> None:
    saving = opened(name, Place(tmp_path))
    for number in range(3):
        saving.commit({"number": number})
    saving.close()

    engine = opened(name, Place(tmp_path))
    assert isinstance(engine, Steps)
    assert engine.read() == {"number": 2}
    assert engine.history(limit=2) == 2
    assert "Step 1: search the sources" in engine.tree()
    engine.close()


@pytest.mark.parametrize("scenario", ["timeline-small", "timeline-list"])
def test_a_unit_measures_checkpoints_and_looking_back(scenario: str) -> None:
    found = unit.measure(scenario, STEPS_ON_DISK, SIZE)

    figures = found["figures"]
    named = {metric.key for metric in registry.scenarios()[scenario].metrics}
    assert figures["checkpoints"] == 40
    assert named <= figures.keys()
    assert found["notes"] == []


def test_cpu_and_folder_have_a_mark_at_each_twentieth_of_the_checkpoints() -> None:
    courses = unit.measure("timeline-small", STEPS_ON_DISK, SIZE)["courses"]

    assert {key: len(course) for key, course in courses.items()} == {
        "commits_cpu": 20,
        "folder_mb": 20,
    }
    assert courses["commits_cpu"] == sorted(courses["commits_cpu"])


def test_a_unit_of_checkpoints_that_reaches_its_cap_keeps_the_marks_it_passed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = iter([None] * 20)
    monkeypatch.setattr(Bounds, "reached", lambda bounds: next(steps, "its time cap"))

    found = unit.measure("timeline-list", STEPS_ON_DISK, SIZE)

    assert found["notes"] == ["stopped at 21 of 40 checkpoints by its time cap"]
    assert [len(course) for course in found["courses"].values()] == [10, 10]


def test_the_folder_of_a_growing_list_is_not_many_times_the_list() -> None:
    figures = unit.measure("timeline-list", STEPS_ON_DISK, SIZE)["figures"]

    assert figures["folder_mb"] < 0.2


def test_both_timelines_compare_us_with_both_storages_of_the_peer() -> None:
    for name in ("timeline-small", "timeline-list"):
        scenario = registry.scenarios()[name]
        compared = [target for target in scenario.targets if target.others]

        assert [target.metric for target in compared] == ["commits_cpu", "folder_mb"]
        assert {target.others for target in compared} == {PEERS_STEPS}
