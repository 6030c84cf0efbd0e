from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench import _registry as registry
from bench import _unit as unit
from bench._clock import own_peak_bytes
from bench._model import Place
from bench.engines.states import SMALL, VALUE, Held, held
from bench.scenarios._sides import (
    EVERY_HELD,
    EVERY_HELD_ON_DISK,
    HELD,
    HELD_ON_DISK,
    HELD_RELAXED,
    PEERS_HELD,
    PEERS_HELD_ON_DISK,
    TYPED_ON_DISK,
)
from bench.scenarios.states import Appends, Edits

ON_DISK = [HELD_ON_DISK, HELD_RELAXED, TYPED_ON_DISK]
SIZES: dict[str, dict[str, int]] = {
    "state-read": {"records": 300, "rounds": 4, "reopened": 2},
    "state-edit": {"records": 300, "edits": 4, "assigned": 2},
    "state-append": {"appends": 40, "assigned": 2},
    "state-keys": {"keys": 300, "changes": 4, "opens": 1},
}
ROUNDS = {"state-read": 4, "state-edit": 4, "state-append": 40, "state-keys": 4}


def opened(name: str, place: Place | None = None) -> Held:
    info = registry.engines()[name]
    return held(info.open(place) if place else info.open())


def measured(scenario: str, name: str) -> dict[str, Any]:
    size = {**SIZES[scenario.removesuffix("-disk")], "worst": 1, "seconds": 60}
    return unit.measure(scenario, name, size)


def test_a_state_in_memory_gives_to_a_new_handle_what_was_changed_in_place() -> None:
    state = opened(HELD)
    state.commit([1])
    state.look(VALUE).append(2)
    state.save()
    state.reopen()

    assert state.look(VALUE) == [1, 2]
    assert state.read() == [1, 2]
    assert state.stored_bytes() > 0


@pytest.mark.parametrize("name", ON_DISK)
def test_a_state_on_disk_reads_back_after_it_was_closed(name: str, tmp_path: Path) -> None:
    state = opened(name, Place(tmp_path))
    state.commit([1])
    state.set(SMALL, 7)
    value = state.look(VALUE)
    value.append(2)
    state.changed(VALUE, value)
    state.save()
    state.close()

    state = opened(name, Place(tmp_path))
    assert (state.look(VALUE), state.look(SMALL)) == ([1, 2], 7)
    state.close()


@pytest.mark.parametrize("name", ON_DISK)
def test_a_state_on_disk_keeps_single_keys(name: str, tmp_path: Path) -> None:
    state = opened(name, Place(tmp_path))
    state.load({"a": 1, "b": 2})
    state.put("a", 3)

    assert (state.get("a"), state.get("b")) == (3, 2)
    state.close()


@pytest.mark.parametrize("scenario", SIZES)
def test_a_unit_measures_a_state_in_memory(scenario: str) -> None:
    found = measured(scenario, HELD)

    named = {metric.key for metric in registry.scenarios()[scenario].metrics}
    assert named <= found["figures"].keys()
    assert found["figures"]["commits"] == ROUNDS[scenario]
    assert found["notes"] == []
    assert found["courses"]["commits_cpu"]


@pytest.mark.parametrize("scenario", [f"{name}-disk" for name in SIZES])
def test_a_unit_measures_a_state_on_disk(scenario: str) -> None:
    found = measured(scenario, HELD_ON_DISK)

    named = {metric.key for metric in registry.scenarios()[scenario].metrics}
    assert named <= found["figures"].keys()
    assert found["figures"]["commits"] == ROUNDS[scenario.removesuffix("-disk")]
    assert found["notes"] == []


@pytest.mark.parametrize(("scenario", "name"), [("state-read", HELD), ("state-read-disk", "files")])
def test_a_change_in_place_of_a_value_that_was_only_read_is_caught(
    scenario: str, name: str
) -> None:
    side = HELD_ON_DISK if name == "files" else name

    assert measured(scenario, side)["figures"]["caught"] == 1


def test_a_unit_measures_the_memory_of_steps_that_read_no_large_value() -> None:
    for name in (HELD_ON_DISK, TYPED_ON_DISK):
        figures = unit.measure("state-memory", name, {"megabytes": 2, "steps": 3})["figures"]

        assert 0 < figures["above_mb"] < 30
        assert figures["interpreter_mb"] > 5
        assert figures["folder_mb"] > 1.9


def test_the_memory_of_a_program_is_its_own() -> None:
    before = own_peak_bytes()
    held_for_a_moment = b"x" * 50_000_000

    assert own_peak_bytes() - before > 40_000_000
    assert len(held_for_a_moment) == 50_000_000


def test_a_list_that_grows_is_stored_in_about_its_own_size() -> None:
    assert measured("state-append", HELD)["figures"]["amplification"] < 5


@pytest.mark.parametrize("work", [Edits(50), Appends()], ids=["edits", "appends"])
def test_the_same_change_is_made_to_our_value_and_to_that_of_a_side(work: Any) -> None:
    theirs = [dict(one) for one in work.value]
    for _ in range(10):
        change = work.next_change()
        change(work.value)
        change(theirs)

    assert theirs == work.value
    assert not work.value or theirs[-1] is not work.value[-1]


def test_every_state_is_compared_with_all_three_peers() -> None:
    for name in (*SIZES, *(f"{name}-disk" for name in SIZES)):
        scenario = registry.scenarios()[name]
        on_disk = name.endswith("-disk")
        compared = [target for target in scenario.targets if len(target.others) > 1]

        assert set(scenario.engines) <= set(EVERY_HELD_ON_DISK if on_disk else EVERY_HELD)
        peers = PEERS_HELD_ON_DISK if on_disk else PEERS_HELD
        assert {target.others for target in compared} == {peers}
        sides = {target.side for target in compared}
        assert sides == ({HELD_ON_DISK, HELD_RELAXED} if on_disk else {HELD})


def test_edits_and_appends_on_disk_must_be_ten_times_below_the_best_peer() -> None:
    for name in ("state-edit-disk", "state-append-disk"):
        targets = registry.scenarios()[name].targets
        limits = [one.limit for one in targets if one.metric == "commits_cpu"]

        assert limits == [10.0, 10.0]
