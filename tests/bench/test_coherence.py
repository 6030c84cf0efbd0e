"""The family `coherence`. What needs LangGraph is tested beside it, in tests/frameworks."""

from __future__ import annotations

import pytest

from bench import __main__ as command
from bench import _registry as registry
from bench import _unit as unit
from bench._model import Target
from bench._text import SIZES, fields, payload_bytes, text
from bench.scenarios._sides import (
    EVERY_SHARED_SERVED,
    EVERY_TOLD,
    OUR_SHARED,
    OUR_SHARED_SERVED,
    PEERS_SHARED,
    SHARED_MEMORY,
    TOLD_HERE,
)
from bench.scenarios.agents import Done
from bench.scenarios.coherence import awaited_in_turns, compared, in_turns, run_awaited


def targets(scenario: str) -> list[Target]:
    return list(registry.scenarios()[scenario].targets)


def test_the_family_is_found_by_its_name() -> None:
    chosen = command.picked(command.arguments(["coherence"]))

    assert {scenario.name.partition("-")[0] for scenario in chosen} == {"coherence"}
    assert len(chosen) > 8


def test_get_and_put_are_bounded_beside_the_plain_store_and_the_peer() -> None:
    for name, limit in (("get", 4.0), ("get-fields", 4.0), ("put", 15.0), ("put-fields", 15.0)):
        found = targets(f"coherence-{name}")
        alone = {one.metric: one.limit for one in found if not one.others}
        beside = {one.metric: one.under for one in found if one.others}

        assert alone == {f"times_{size}": limit for size in SIZES}
        assert beside == {f"us_{size}": PEERS_SHARED for size in SIZES}


def test_nobody_may_lose_an_edit() -> None:
    for name, sides in (
        ("coherence-agents-threads", OUR_SHARED),
        ("coherence-agents-tasks", OUR_SHARED),
        ("coherence-agents-apart", OUR_SHARED_SERVED),
    ):
        found = {one.side: one.limit for one in targets(name) if one.metric == "lost"}

        assert found == dict.fromkeys(sides, 0.0)


def test_a_put_is_flat_and_a_holder_is_told_within_a_millisecond_of_the_bus() -> None:
    assert {one.limit for one in targets("coherence-readers")} == {2.0}
    assert {(one.side, one.limit) for one in targets("coherence-invalidation")} == {
        (side, 1000.0) for side in EVERY_TOLD
    }


def test_ours_run_in_the_environment_of_their_peers() -> None:
    infos = registry.engines()
    names = (*OUR_SHARED, SHARED_MEMORY, PEERS_SHARED[0], *EVERY_SHARED_SERVED)

    assert {infos[name].environment for name in names} == {"peers"}


def test_an_artifact_is_about_as_large_as_its_name_says() -> None:
    for make in (text, fields):
        for size in SIZES.values():
            assert 0.5 * size < payload_bytes(make(size, 1)) < 1.5 * size


def test_artifacts_of_other_numbers_differ() -> None:
    assert text(200, 1) != text(200, 2)
    assert fields(4000, 1) != fields(4000, 2)
    assert text(200, 1) == text(200, 1)


def test_sides_are_compared_pair_by_pair() -> None:
    found = compared([(2e-6, 1e-6), (4e-6, 2e-6), (9e-6, 1e-6)])

    assert found.micros == pytest.approx(4.0)
    assert found.times == pytest.approx(2.0)


def test_both_sides_make_calls_in_turns() -> None:
    turns: list[str] = []

    found = in_turns(lambda _: turns.append("mine"), lambda _: turns.append("other"), blocks=3)

    assert turns[-6:] == ["mine", "other"] * 3
    assert found.micros >= 0


def test_what_is_awaited_takes_turns_too() -> None:
    turns: list[str] = []

    async def mine(count: int) -> None:
        turns.append("mine")

    async def other(count: int) -> None:
        turns.append("other")

    async def work() -> dict[str, float]:
        return vars(await awaited_in_turns(mine, other, blocks=3))

    found = run_awaited(work)

    assert turns[-6:] == ["mine", "other"] * 3
    assert found.keys() == {"micros", "times"}


def test_what_agents_did_is_added_up_and_compared_with_what_is_stored() -> None:
    done = Done(reads=3, edits=4, tries=5)
    done += Done(reads=1, edits=4, tries=7, errors=1, last_error="it failed")

    figures = done.figures(counted=6)

    assert (figures["completed"], figures["edits"], figures["lost"]) == (12, 8, 2)
    assert (figures["errors"], done.last_error) == (1, "it failed")
    assert figures["again"] == 50.0


def test_a_unit_measures_how_soon_a_holder_of_this_process_is_told() -> None:
    figures = unit.measure("coherence-invalidation", TOLD_HERE, {"writes": 5})["figures"]

    assert figures["bus_us"] > 0
    assert figures["late_us"] >= figures["told_us"]
