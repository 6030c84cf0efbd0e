"""When the grant of an agent may be ended by others: pure, with the caller's clock.

A holder that is silent has not renewed its lease for the lease's whole time and a margin,
counted by who wants to end it, from when it first saw the lease as it is. A holder that
holds for too long has had one and the same grant for longer than the maximum.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ropewalk.errors import InvalidInput
from ropewalk.store import LeaseRecord
from ropewalk.store._checks import expect, expect_whole
from ropewalk.store._leases import margin

RECLAIM_HEARTBEAT = "reclaim_heartbeat"
"""The holder was silent for too long."""
RECLAIM_MAX_HOLD = "reclaim_max_hold"
"""The holder had the grant for too long, alive or not."""


@dataclass(frozen=True, slots=True)
class CrashRecoveryConfig:
    """How soon the grants of agents that crashed or hang are ended.

    A grant is renewed in the background; who has not done so for `heartbeat_timeout_ticks`
    is silent, and its grant may be ended by anybody who waits for it. `max_hold_ticks` is the
    longest that an agent may hold one grant. With `enabled` a client looks for silent and
    overdue holders by itself, and ends its own grants in time; without, only who is in need
    of an artifact ends the grant of a silent holder, and nobody that of a living one.
    """

    enabled: bool = False
    heartbeat_timeout_ticks: int = 10
    max_hold_ticks: int = 1000

    def __post_init__(self) -> None:
        expect(isinstance(self.enabled, bool), "enabled is True or False", self.enabled)
        expect_whole(self.heartbeat_timeout_ticks, 1, "heartbeat_timeout_ticks")
        expect_whole(self.max_hold_ticks, 1, "max_hold_ticks")

    def validate(self, *, tick_seconds: float, lease_seconds: float | None) -> None:
        """Raise `InvalidInput` if a grant could end before what is read under it.

        `lease_seconds` is for how long the strategy serves a copy without asking, if it does.
        """
        held = self.max_hold_ticks * tick_seconds
        if self.enabled and lease_seconds is not None and held <= lease_seconds:
            raise InvalidInput(
                f"max_hold_ticks={self.max_hold_ticks} is {held:g} seconds, which is not longer "
                f"than the {lease_seconds:g} seconds of the strategy 'lease'. Raise "
                "max_hold_ticks, or shorten the lease."
            )


class Reclaim(NamedTuple):
    """The end of a grant that its holder did not give back."""

    artifact: str
    agent: str
    instance: str
    """The client that the agent ran in."""
    trigger: str
    """`reclaim_heartbeat` or `reclaim_max_hold`."""
    token: int
    """The fencing token that is no longer good."""
    seconds: float
    """How long it was silent, or was held: as far as the client that ended it has seen."""


class Seen(NamedTuple):
    """What is known of a lease by having looked at it."""

    silent_for: float
    """Seconds since it was first seen as it is now."""
    held_for: float
    """Seconds since it was first seen with its present token."""
    free_in: float
    """Seconds until it may be taken over, if it is not renewed before."""


class _Sighting(NamedTuple):
    record: LeaseRecord
    since: float
    granted: float


class Sightings:
    """What one client has seen of leases. Not safe to share between threads."""

    def __init__(self) -> None:
        self._known: dict[str, _Sighting] = {}

    def saw(self, record: LeaseRecord, now: float) -> Seen:
        """Note a lease as it was just read; `now` must be later than that."""
        known = self._known.get(record.name)
        if known is None or known.record.token != record.token:
            known = self._known[record.name] = _Sighting(record, now, now)
        elif known.record != record:
            known = self._known[record.name] = _Sighting(record, now, known.granted)
        silent = now - known.since
        return Seen(silent, now - known.granted, silence_of(record) - silent)

    def is_overdue(self, name: str, now: float) -> bool:
        """Whether a lease could be taken over, if it is still as it was seen last."""
        known = self._known.get(name)
        return known is not None and now - known.since >= silence_of(known.record)

    def retain(self, names: Iterable[str]) -> None:
        """Forget all other leases: they were given back."""
        kept = set(names)
        self._known = {name: seen for name, seen in self._known.items() if name in kept}


def silence_of(record: LeaseRecord) -> float:
    """How long a lease must be seen unchanged before it may be taken over."""
    return record.duration + margin(record.duration)
