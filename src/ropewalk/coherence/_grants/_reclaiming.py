"""Ending the grants of other clients.

A silent holder's lease is taken over as any lease is: whoever does so has seen it unchanged
for longer than its holder counts on it. A holder that still beats counts on its lease until
the time of its last renewal is over. So what is taken from it is kept, by nobody, for as long:
nothing is written meanwhile, and what the holder may still read from its cache is current.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from ropewalk.coherence._grants._recovery import (
    RECLAIM_HEARTBEAT,
    RECLAIM_MAX_HOLD,
    Reclaim,
    Seen,
    Sightings,
    silence_of,
)
from ropewalk.errors import ArtifactHeld, LeaseHeld, Unavailable
from ropewalk.store import Lease, LeaseRecord

if TYPE_CHECKING:
    from ropewalk.coherence._grants._hooks import LeaseAuthority


def holder_of(record: LeaseRecord) -> tuple[str, str]:
    """The agent and the client that hold a lease; no agent if it is kept from all of them."""
    agent, _, instance = record.holder.rpartition("@")
    return agent, instance.replace("%40", "@").replace("%25", "%")


def holder_name(agent: str, instance: str) -> str:
    """What the leases of an agent in a client are held by."""
    return f"{agent}@{instance.replace('%', '%25').replace('@', '%40')}"


class Reclaimer:
    """What one client has seen of the grants of all, and what it ended."""

    def __init__(
        self, authority: LeaseAuthority, instance: str, clock: Callable[[], float]
    ) -> None:
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
        """What somebody is told who wants the lease of an artifact."""
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
