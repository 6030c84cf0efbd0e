from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench import _registry as registry
from bench import _unit as unit
from bench._clock import Bounds, block_bytes, folder_bytes
from bench._environment import ROOT
from bench._model import Engine, Place
from bench._run import run_scenario
from bench.scenarios._sides import (
    BARE_ON_DISK,
    EVERY_ON_DISK,
    FILES,
    OURS_ON_DISK,
    PICKLE_ON_DISK,
    TOLD_ON_DISK,
)
from bench.scenarios.commits import run_together

OWN = [OURS_ON_DISK, FILES, TOLD_ON_DISK, PICKLE_ON_DISK, BARE_ON_DISK]
STEPS = {"worst": 2, "seconds": 60}
ALONE = {"commits": 50, "seconds": 60, "processes": 2, "together_seconds": 1}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@contextmanager
def opened(name: str, place: Place) -> Iterator[Engine]:
    engine = registry.engines()[name].open(place)
    try:
        yield engine
    finally:
        engine.close()


def read_back(name: str, place: Place) -> Any:
    with opened(name, place) as engine:
        return engine.read()


@pytest.mark.parametrize("name", OWN)
def test_a_side_on_disk_reads_back_what_it_was_told_before_it_was_closed(
    name: str, place: Place
) -> None:
    value = {"counter": 0, "items": ["a"]}
    with opened(name, place) as engine:
        engine.commit(value)
        value["counter"] = 1
        engine.change(value, ("counter",), 1)

    assert read_back(name, place) == value


@pytest.mark.parametrize("name", OWN)
def test_a_side_on_disk_goes_on_after_it_was_closed(name: str, place: Place) -> None:
    value = {"counter": 0, "items": ["a"]}
    with opened(name, place) as engine:
        engine.commit(value)
    value["counter"] = 2
    with opened(name, place) as engine:
        engine.change(value, ("counter",), 2)

    assert read_back(name, place) == value


@pytest.mark.parametrize("name", OWN)
def test_a_side_on_disk_keeps_single_keys(name: str, place: Place) -> None:
    with opened(name, place) as engine:
        engine.load({"a": 1, "b": 2})
    with opened(name, place) as engine:
        engine.put("a", 3)

    with opened(name, place) as engine:
        assert (engine.get("a"), engine.get("b")) == (3, 2)


@pytest.mark.parametrize("name", OWN)
def test_branches_of_one_folder_keep_apart(name: str, tmp_path: Path) -> None:
    for branch in ("one", "two"):
        with opened(name, Place(tmp_path, branch=branch)) as engine:
            engine.commit({"branch": branch})

    assert read_back(name, Place(tmp_path, branch="one")) == {"branch": "one"}


@pytest.mark.parametrize("name", [OURS_ON_DISK, PICKLE_ON_DISK, BARE_ON_DISK])
def test_a_unit_measures_a_growing_chat_on_disk(name: str) -> None:
    found = unit.measure("chat-disk", name, {"messages": 40, **STEPS})

    figures = found["figures"]
    assert figures["commits"] == 40
    assert figures["folder_mb"] > 0.02
    assert figures["worst_kb"] >= 0
    assert found["notes"] == []
    assert len(found["courses"]["commits_cpu"]) == 20


def test_a_unit_on_disk_that_reaches_its_cap_says_how_far_it_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = iter([None] * 19)
    monkeypatch.setattr(Bounds, "reached", lambda bounds: next(steps, "its disk cap"))

    found = unit.measure("chat-disk", PICKLE_ON_DISK, {"messages": 40, **STEPS})

    assert found["notes"] == ["stopped at 20 of 40 commits by its disk cap"]
    assert len(found["courses"]["commits_cpu"]) == 10


@pytest.mark.parametrize("name", [OURS_ON_DISK, TOLD_ON_DISK])
def test_a_unit_measures_edits_and_what_the_first_after_a_restart_costs(name: str) -> None:
    found = unit.measure("edit-disk", name, {"sections": 3, "edits": 4, **STEPS})

    assert found["figures"]["commits"] == 4
    assert found["figures"]["kb"] < 48
    assert found["figures"]["restart_ms"] > 0


def test_a_unit_measures_a_document_handed_over_again() -> None:
    size = {"documents": 10, "commits": 4, **STEPS}

    found = unit.measure("document-disk", OURS_ON_DISK, size)

    assert found["figures"]["amplification"] < 1.5


@pytest.mark.parametrize("name", [OURS_ON_DISK, BARE_ON_DISK])
def test_a_unit_opens_a_store_of_keys_in_a_fresh_process(name: str) -> None:
    size = {"keys": 300, "changes": 3, "opens": 1, **STEPS}

    figures = unit.measure("keys-disk", name, size)["figures"]

    assert figures["open_ms"] > 0
    assert figures["cold_ms"] > 0


@pytest.mark.parametrize("scenario", ["commits-durable", "commits-relaxed"])
def test_a_unit_measures_commits_alone_and_together(scenario: str) -> None:
    figures = unit.measure(scenario, OURS_ON_DISK, ALONE)["figures"]

    assert figures["commits"] == 50
    assert figures["wall_over_bare"] > 0
    assert figures["rate_together"] > 0
    assert 0 <= figures["fairness"] <= 1
    assert figures["kept"] == 1


@pytest.mark.parametrize("name", [OURS_ON_DISK, FILES])
def test_a_unit_measures_commits_to_one_branch(name: str) -> None:
    size = {"processes": 2, "together_seconds": 1}
    found = unit.measure("commits-shared", name, size)["figures"]

    assert found["waited_over"] >= 1
    assert 0 <= found["fairness"] <= 1
    assert found["kept"] == 1


def test_a_process_that_fails_among_several_fails_the_unit(tmp_path: Path) -> None:
    unknown = replace(registry.engines()[BARE_ON_DISK], name="nobody")
    places = [Place(tmp_path, branch="one"), Place(tmp_path, branch="two")]

    with pytest.raises(AssertionError, match=r"process \d: KeyError\('nobody'\)|BrokenBarrier"):
        run_together(unknown, places, 1)


def test_a_unit_leaves_nothing_in_its_folder() -> None:
    scenario = registry.scenarios()["document-disk"]
    size = {"documents": 2, "commits": 2, **STEPS}
    before = _work_folders()

    outcome = run_scenario(
        scenario, registry.engines(), [OURS_ON_DISK], size, 1, {}, lambda line: None
    )

    assert outcome.sides[OURS_ON_DISK].failure is None
    assert _work_folders() == before


def _work_folders() -> set[Path]:
    return set(ROOT.glob(".bench-work-*"))


def test_the_bytes_of_a_folder_are_those_of_all_files_in_it(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "one").write_bytes(b"x" * 10)
    (tmp_path / "inner" / "two").write_bytes(b"x" * 5000)

    assert folder_bytes(tmp_path) == 5010
    assert block_bytes(tmp_path) >= 5010


def test_bounds_name_the_cap_of_the_disk_and_remember_the_largest_folder(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * 1000)
    bounds = Bounds(seconds=3600, folder=tmp_path, disk=999)

    assert "disk" in str(bounds.reached())
    assert bounds.largest == 1000


def test_scenarios_on_disk_have_only_sides_on_disk() -> None:
    on_disk = {*EVERY_ON_DISK, TOLD_ON_DISK}
    for scenario in registry.scenarios().values():
        named = set(scenario.engines)

        assert named <= on_disk or not named & on_disk
