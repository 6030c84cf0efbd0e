"""Leases behind grants: when one may be ended, and how another client ends it.

A holder that is silent has not renewed its lease for the lease's whole time and a margin,
counted by who wants to end it, from when it first saw the lease as it is. Its lease is taken
over as any lease is. A holder that is alive but holds for too long counts on its lease until
the time of its last renewal is over, so the lease is kept in quarantine for as long: nothing is
written meanwhile, and what the holder may still read from its cache is current.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ropewalk.errors import ArtifactHeld, InvalidInput, LeaseHeld, Unavailable
from ropewalk.store import Lease, LeaseRecord
from ropewalk.store.leases import margin
from ropewalk.store.validation import expect, expect_whole

if TYPE_CHECKING:
    from ropewalk.coherence.authority import Authority

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


def holder_of(record: LeaseRecord) -> tuple[str, str]:
    """The agent and the client that hold a lease; no agent if it is kept from all of them."""
    agent, _, instance = record.holder.rpartition("@")
    return agent, instance.replace("%40", "@").replace("%25", "%")


def holder_name(agent: str, instance: str) -> str:
    """What the leases of an agent in a client are held by."""
    return f"{agent}@{instance.replace('%', '%25').replace('@', '%40')}"


class Reclaimer:
    """What one client has seen of the grants of all, and what it ended."""

    def __init__(self, authority: Authority, instance: str, clock: Callable[[], float]) -> None:
        self._authority = authority
        self._nobody = holder_name("", instance)  # No agent has this name.
        self._clock = clock
        self._lock, self._ending = threading.Lock(), threading.Lock()
        self._ended: dict[str, int] = {}
        self._sightings = Sightings()
        self._quarantined: list[tuple[float, Lease]] = []

    @property
    def busy(self) -> bool:
        """Whether something that was taken must be given back later."""
        return bool(self._quarantined)

    # Looking.

    def look_at_all(self) -> Iterator[tuple[LeaseRecord, Seen]]:
        """Every lease, and what is known of it."""
        records = self._authority.leases()
        now = self._clock()
        with self._lock:
            self._sightings.retain(record.name for record in records)
            seen = [(record, self._sightings.saw(record, now)) for record in records]
        yield from seen

    def look(self, artifact: str) -> tuple[LeaseRecord, Seen] | None:
        """The lease of one artifact, if somebody has it."""
        name = self._authority.lease_name(artifact)
        for record, seen in self.look_at_all():
            if record.name == name:
                return record, seen
        return None

    def is_overdue(self, artifact: str) -> bool:
        """Whether the holder of an artifact was silent for too long when last looked at."""
        with self._lock:
            return self._sightings.is_overdue(self._authority.lease_name(artifact), self._clock())

    def held(self, artifact: str, retry_after: float | None) -> ArtifactHeld:
        """The error for an agent that wants the lease of an artifact."""
        found = self.look(artifact)
        agent = "" if found is None else holder_of(found[0])[0]
        return ArtifactHeld(artifact, agent, retry_after)

    # Ending.

    def take_over(
        self, record: LeaseRecord, seconds: float, artifact: str | None = None
    ) -> Reclaim | None:
        """End the grant of a silent holder; None if it was faster.

        Several threads may find the same holder silent: only one of them names the agent.
        """
        artifact = artifact or self._authority.leased(record)
        if artifact is None:
            # Nobody can ask for it by its name. So it is taken as from a holder that is alive.
            seized = self.seize(record, seconds)
            return None if seized is None else seized._replace(trigger=RECLAIM_HEARTBEAT)
        agent, instance = holder_of(record)
        with self._ending:
            if self._ended.get(record.name) == record.token:
                agent = ""
            else:
                try:
                    lease = self._authority.acquire(artifact, self._nobody, record.duration)
                except LeaseHeld:
                    return None  # It woke up, or the store has not watched it for long enough.
                self._ended[record.name] = record.token
                with suppress(Unavailable):  # Then it ends by its own silence.
                    self._authority.release(lease)
        return Reclaim(artifact, agent, instance, RECLAIM_HEARTBEAT, record.token, seconds)

    def seize(self, record: LeaseRecord, seconds: float) -> Reclaim | None:
        """End the grant of a holder that may be alive; None if that grant was over."""
        lease = self._authority.seize(record, self._nobody, record.duration)
        if lease is None:
            return None
        until = self._clock() + silence_of(record)
        with self._lock:
            self._quarantined.append((until, lease))
        agent, instance = holder_of(record)
        artifact = self._authority.leased(record) or record.name
        return Reclaim(artifact, agent, instance, RECLAIM_MAX_HOLD, record.token, seconds)

    def clear(self, record: LeaseRecord) -> None:
        """End a lease that this client's own name stands for, and that nobody here has."""
        lease = self._authority.seize(record, self._nobody, record.duration)
        if lease is not None:
            self._authority.release(lease)

    def end_quarantines(self) -> None:
        """Give back what was taken from holders that have long stopped to count on it."""
        now = self._clock()
        with self._lock:
            over = [lease for until, lease in self._quarantined if until <= now]
            self._quarantined = [one for one in self._quarantined if one[1] not in over]
        for lease in over:
            with suppress(Unavailable):  # Then it ends by its own silence.
                self._authority.release(lease)
