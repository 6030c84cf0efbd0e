"""Leases: who may hold one, and when it may be taken from somebody silent.

No clock is compared with another machine's. A holder counts from before its request.
A reclaimer must itself have seen the lease unchanged for its whole time and a margin,
counted from after it first saw it. So the holder stops before the reclaimer begins,
as long as both clocks run at about the same speed. The fencing token that `commit`
checks holds even where they do not.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import NamedTuple, Protocol

from ropewalk.errors import Conflict, InvalidInput, LeaseHeld, LeaseLost
from ropewalk.store.forking import freed_after_fork
from ropewalk.store.model import Lease, LeaseRecord

_MOST_SIGHTINGS = 4096
_TRIES = 1000  # A race is lost a few times; an engine that never agrees is broken.


class LeaseEngine(Protocol):
    """What an engine does for leases: each call is one atomic step."""

    def _lease(self, space: str, name: str) -> LeaseRecord | None: ...

    def _grant_lease(
        self, space: str, name: str, expected: LeaseRecord | None, holder: str, duration: float
    ) -> LeaseRecord | None: ...

    def _swap_lease(
        self, space: str, expected: LeaseRecord, record: LeaseRecord | None
    ) -> bool: ...


class _Sighting(NamedTuple):
    record: LeaseRecord
    since: float


class LeaseKeeper:
    """The protocol of leases on one store object, with its clock and what it has seen."""

    def __init__(self, engine: LeaseEngine, clock: Callable[[], float]) -> None:
        self._engine = engine
        self._clock = clock
        self._sightings: dict[tuple[str, str], _Sighting] = {}
        self._lock = freed_after_fork(threading.Lock())

    def acquire(self, space: str, name: str, holder: str, duration: float) -> Lease:
        """Take a lease that is free, this holder's own, or silent for too long."""
        duration = check_duration(duration)
        for _ in range(_TRIES):
            record = self._engine._lease(space, name)
            if record is not None and record.holder != holder:
                self._wait_for(space, record)
            before = self._clock()
            granted = self._engine._grant_lease(space, name, record, holder, duration)
            if granted is not None:
                self._forget(space, name)
                return _lease(space, granted, before)
        raise _never_still(space, name)

    def seize(self, space: str, record: LeaseRecord, holder: str, duration: float) -> Lease | None:
        """Take a lease from its holder, who may be alive; None if it is no longer that grant."""
        duration = check_duration(duration)
        for _ in range(_TRIES):
            found = self._engine._lease(space, record.name)
            if found is None or (found.token, found.holder) != (record.token, record.holder):
                return None
            before = self._clock()
            granted = self._engine._grant_lease(space, record.name, found, holder, duration)
            if granted is not None:
                self._forget(space, record.name)
                return _lease(space, granted, before)
        raise _never_still(space, record.name)

    def renew(self, lease: Lease, duration: float | None) -> Lease:
        """Count the lease's time from now; `LeaseLost` if it went to somebody else."""
        wanted = lease.duration if duration is None else check_duration(duration)
        for _ in range(_TRIES):
            before = self._clock()
            record = self._engine._lease(lease.space, lease.name)
            if record is None or record.token != lease.token:
                raise LeaseLost(
                    f"lease {lease.name!r} of {lease.space!r} is no longer held with token "
                    f"{lease.token}. Acquire it again."
                )
            renewed = record._replace(beat=record.beat + 1, duration=wanted)
            if self._engine._swap_lease(lease.space, record, renewed):
                return _lease(lease.space, renewed, before)
        raise _never_still(lease.space, lease.name)

    def release(self, lease: Lease) -> bool:
        """Give a lease back; False if it was lost before."""
        for _ in range(_TRIES):
            record = self._engine._lease(lease.space, lease.name)
            if record is None or record.token != lease.token:
                return False
            if self._engine._swap_lease(lease.space, record, None):
                return True
        raise _never_still(lease.space, lease.name)

    def saw(self, space: str, record: LeaseRecord) -> float:
        """Note a lease that was read; how many seconds until it may be taken over."""
        now = self._clock()
        key = (space, record.name)
        with self._lock:
            sighting = self._sightings.get(key)
            if sighting is None or sighting.record != record:
                self._sightings.pop(key, None)
                sighting = self._sightings[key] = _Sighting(record, now)
                if len(self._sightings) > _MOST_SIGHTINGS:
                    del self._sightings[next(iter(self._sightings))]
        return sighting.since + record.duration + margin(record.duration) - now

    def _wait_for(self, space: str, record: LeaseRecord) -> None:
        remaining = self.saw(space, record)
        if remaining > 0:
            raise LeaseHeld(
                f"lease {record.name!r} of {space!r} is held by {record.holder!r}. It can be "
                f"taken over in {remaining:.3g} seconds if it is not renewed before.",
                remaining,
            )

    def _forget(self, space: str, name: str) -> None:
        with self._lock:
            self._sightings.pop((space, name), None)


def margin(duration: float) -> float:
    """What a reclaimer waits beyond a lease's time, for clocks that run apart."""
    return 0.05 + 0.05 * duration


def check_duration(duration: float) -> float:
    """A lease's time in seconds, checked."""
    if not (isinstance(duration, int | float) and math.isfinite(duration) and duration > 0):
        raise InvalidInput(f"a lease lasts a positive number of seconds, not {duration!r}")
    return float(duration)


def _never_still(space: str, name: str) -> Conflict:
    return Conflict(f"lease {name!r} of {space!r} changed at each of {_TRIES} tries")


def _lease(space: str, record: LeaseRecord, before: float) -> Lease:
    deadline = before + record.duration
    return Lease(space, record.name, record.holder, record.token, record.duration, deadline)
