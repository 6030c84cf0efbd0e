"""When a grant may be ended by others: the rules alone."""

from __future__ import annotations

from typing import Any

import pytest

from ropewalk.coherence.leases import CrashRecoveryConfig, Sightings, silence_of
from ropewalk.errors import InvalidInput
from ropewalk.store import LeaseRecord

RECORD = LeaseRecord("grant/plan", "a@1", token=7, beat=0, duration=10.0)


def test_the_defaults_are_those_of_the_page() -> None:
    config = CrashRecoveryConfig()

    assert (config.enabled, config.heartbeat_timeout_ticks, config.max_hold_ticks) == (
        False,
        10,
        1000,
    )


@pytest.mark.parametrize(
    "given",
    [
        {"enabled": 1},
        {"heartbeat_timeout_ticks": 0},
        {"heartbeat_timeout_ticks": 2.5},
        {"max_hold_ticks": -1},
        {"max_hold_ticks": True},
    ],
)
def test_a_config_is_checked(given: Any) -> None:
    with pytest.raises(InvalidInput):
        CrashRecoveryConfig(**given)


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(TypeError):
        CrashRecoveryConfig(timeout=3)  # type: ignore[call-arg]


@pytest.mark.parametrize(("seconds", "tick"), [(1000.0, 1.0), (300.0, 0.3), (2000.0, 1.0)])
def test_a_maximum_hold_that_is_not_longer_than_the_lease_is_refused(
    seconds: float, tick: float
) -> None:
    config = CrashRecoveryConfig(enabled=True)

    with pytest.raises(ValueError, match="max_hold_ticks=1000"):
        config.validate(tick_seconds=tick, lease_seconds=seconds)


def test_a_maximum_hold_that_is_longer_than_the_lease_is_sound() -> None:
    CrashRecoveryConfig(enabled=True).validate(tick_seconds=1.0, lease_seconds=999.0)
    CrashRecoveryConfig(enabled=True).validate(tick_seconds=0.001, lease_seconds=None)
    CrashRecoveryConfig(enabled=False).validate(tick_seconds=1.0, lease_seconds=5000.0)


def test_a_lease_is_silent_for_as_long_as_it_was_seen_unchanged() -> None:
    sightings = Sightings()

    first = sightings.saw(RECORD, 100.0)
    later = sightings.saw(RECORD, 104.0)

    assert (first.silent_for, first.free_in) == (0.0, silence_of(RECORD))
    assert (later.silent_for, later.free_in) == (4.0, silence_of(RECORD) - 4.0)


def test_a_renewal_is_a_sign_of_life_but_no_new_grant() -> None:
    sightings = Sightings()
    sightings.saw(RECORD, 100.0)

    renewed = sightings.saw(RECORD._replace(beat=1), 108.0)

    assert (renewed.silent_for, renewed.held_for) == (0.0, 8.0)
    assert renewed.free_in == silence_of(RECORD)


def test_a_new_token_is_a_new_grant() -> None:
    sightings = Sightings()
    sightings.saw(RECORD, 100.0)

    again = sightings.saw(RECORD._replace(token=8), 108.0)

    assert (again.silent_for, again.held_for) == (0.0, 0.0)


def test_what_was_given_back_is_forgotten() -> None:
    sightings = Sightings()
    sightings.saw(RECORD, 100.0)
    sightings.retain([])

    assert sightings.saw(RECORD, 200.0).held_for == 0.0


def test_a_reclaimer_waits_longer_than_the_holder_counts() -> None:
    for duration in (0.1, 1.0, 10.0, 1000.0):
        assert silence_of(RECORD._replace(duration=duration)) > duration * 1.04
