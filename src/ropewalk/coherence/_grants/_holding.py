"""The grants of one client: taken, renewed, given back, and lost.

A grant is a lease in the engine. The holder counts its time from before each request, on the
client's clock; whoever takes it over has waited longer than that on its own clock. The fence
of the lease is what a write is checked with, the time is what a read from cache relies on.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, Final

from ropewalk.coherence._beat import Beat
from ropewalk.coherence._forking import tell_after_fork
from ropewalk.coherence._grants._grant import FORKED, RELEASED, Grant
from ropewalk.coherence._grants._hooks import Hooks, LeaseAuthority
from ropewalk.coherence._grants._reclaiming import Reclaimer, holder_name
from ropewalk.coherence._grants._recovery import (
    RECLAIM_HEARTBEAT,
    RECLAIM_MAX_HOLD,
    CrashRecoveryConfig,
    Reclaim,
)
from ropewalk.coherence._steady import steady
from ropewalk.errors import ArtifactHeld, GrantLost, LeaseHeld, LeaseLost, StoreClosed, Unavailable
from ropewalk.store import Lease
from ropewalk.store.asynchronous import Threads

_NEVER: Final = float("inf")


class Holding:
    """The grants of one client, as far as it alone decides. Safe to share between threads."""

    def __init__(
        self,
        authority: LeaseAuthority,
        config: CrashRecoveryConfig,
        *,
        instance_id: str,
        tick_seconds: float = 1.0,
        clock: Callable[[], float] = steady,
        hooks: Hooks,
        threads: Threads | None = None,
        beats: bool = True,
    ) -> None:
        self.clock = clock
        self.config = config
        self.duration = config.heartbeat_timeout_ticks * tick_seconds
        """Seconds after which a grant that is not renewed may be taken over."""
        self.threads = Threads(4) if threads is None else threads
        self._max_hold = config.max_hold_ticks * tick_seconds if config.enabled else _NEVER
        self._tick_seconds = tick_seconds
        self._authority = authority
        self._hooks = hooks
        self._instance_id = self._instance = instance_id
        self._reclaimer = Reclaimer(authority, instance_id, clock)
        self._beats = beats
        self._beat = Beat(self, "ropewalk-beat")
        self._tick: int | None = None
        """The last tick that somebody gave."""
        self._ticks: dict[str, int] = {}
        self._looked = -_NEVER
        """When it was last looked at what is due."""
        self._closed = self._asleep = False
        self._begin()
        self._start_looking()
        tell_after_fork(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        # Entered by itself: a Condition that is interrupted while it is entered stays locked.
        self._freeing = threading.Lock()
        self._freed = threading.Condition(self._freeing)
        self.held: dict[tuple[str, str], Grant] = {}
        """By agent and artifact, also what was lost and is not given back. Mostly empty."""
        self._asking: set[tuple[str, str]] = set()
        self._unreleased: list[Lease] = []
        self._idle = False

    def _start_looking(self) -> None:
        """Look for silent holders from now on, if that is wanted."""
        self._asleep = False
        if self.config.enabled and not self._closed:
            self._start()

    def after_fork(self) -> None:
        """In a child: what was granted is the parent's, under the parent's name."""
        for grant in self.held.values():
            grant.over = FORKED
        self._instance = f"{self._instance_id}.{os.getpid()}"
        self._reclaimer = Reclaimer(self._authority, self._instance, self.clock)
        self._beat.begin_anew()
        self._begin()
        self._asleep = True

    # Taking and giving back.

    def try_acquire(self, agent: str, artifact: str) -> Grant:
        """Get a grant, or `ArtifactHeld` at once. A holder that was silent for long loses it."""
        key = (agent, artifact)
        with self._lock:
            self._expect_open()
            mine = self.held.get(key)
            if key in self._asking or (mine is not None and mine.over is None):
                raise ArtifactHeld(artifact, agent)
            self._asking.add(key)
        try:
            return self._ask_for(agent, artifact)
        finally:
            with self._lock:
                self._asking.discard(key)

    def _ask_for(self, agent: str, artifact: str) -> Grant:
        began = self.clock()
        try:
            lease = self._authority.acquire(artifact, self._holder(agent), self.duration)
        except LeaseHeld as held:
            raise self._reclaimer.held(artifact, held.retry_after) from held
        tick = self._ticks.get(agent)
        grant = Grant(self, agent, artifact, lease, began, began + self._max_hold, tick)
        with self._lock:
            closed = self._closed
            if not closed:
                self.held[agent, artifact] = grant
                self._idle = False
        if closed:
            self._give_back(lease)
            self._expect_open()
        self._start(soon=self._max_hold < self.duration / 3)
        return grant

    def release(self, grant: Grant) -> bool:
        """Give a grant back; False if it was over."""
        with grant.lock:
            was_over, grant.over = grant.over, grant.over or RELEASED
        with self._lock:
            if self.held.get((grant.agent, grant.artifact)) is grant:
                del self.held[grant.agent, grant.artifact]
        if was_over is not None:
            return False
        self._hooks.released(grant)
        return self._give_back(grant.lease)

    def release_new(self, agent: str, artifact: str, before: Grant | None) -> None:
        """Give back what this thread has got since, if it has got anything."""
        grant = self.held.get((agent, artifact))
        if grant is not None and grant is not before and grant.maker == threading.get_ident():
            self.release(grant)

    def _give_back(self, lease: Lease) -> bool:
        try:
            given = self._authority.release(lease)
        except StoreClosed:
            return False  # It ends by its silence.
        except Unavailable:
            with self._lock:
                self._unreleased.append(lease)
            self._start()
            return False
        self._tell_waiting()
        return given

    def write(self, grant: Grant, value: Any) -> Any:
        """Write under a grant, which must be the agent's present one."""
        if self.held.get((grant.agent, grant.artifact)) is not grant:
            raise GrantLost(grant.artifact, grant.agent, grant.over or RELEASED)
        return self._hooks.write(grant.agent, grant.artifact, value)

    # What every operation asks. Cheap: most agents hold nothing.

    def fence_token(self, agent: str, artifact: str) -> int:
        """What a write of an agent is fenced with: its grant's token, or 0 for nobody's.

        Raises `GrantLost` if the agent has lost a grant that it has not given back.
        """
        if self._asleep:
            self._start_looking()  # In a child that writes.
        if not self.held:
            return 0
        grant = self.held.get((agent, artifact))
        if grant is None:
            return 0
        grant.expect_held()
        return grant.token

    # Life.

    def step(self) -> float | None:
        """Renew what is due, give back what could not be, end what is over; seconds to rest."""
        if self._closed:
            return None
        self._looked = self.clock()
        for grant in list(self.held.values()):
            now = self.clock()
            if grant.over is None and now >= grant.end:
                self._end_own(grant, RECLAIM_MAX_HOLD, now - grant.began)
            elif grant.over is None and now >= grant.due:
                self._renew(grant)
        for lease in self._take_unreleased():
            self._give_back(lease)
        self._reclaimer.end_quarantines()
        return self._rest()

    def _rest(self) -> float | None:
        most = self.duration / 3
        if not (self.held or self._unreleased or self._reclaimer.busy or self.config.enabled):
            was_idle, self._idle = self._idle, True
            return None if was_idle else most
        now = self.clock()
        times = [
            min(grant.due, grant.end)
            for grant in list(self.held.values())
            if grant.over is None and grant.due > now
        ]
        return max(0.001, min(most, min(times, default=_NEVER) - now))

    def close(self) -> None:
        """Give everything back. Closing again does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            held = list(self.held.values())
        self._beat.close()
        for grant in held:
            self.release(grant)
        for lease in self._take_unreleased():
            self._give_back(lease)

    # Inside.

    def _start(self, *, soon: bool = False) -> None:
        if self._beats and soon:
            self._beat.wake()
        elif self._beats:
            self._beat.start()

    def _expect_open(self) -> None:
        if self._closed:
            raise StoreClosed("these artifacts were closed")

    def _holder(self, agent: str) -> str:
        return holder_name(agent, self._instance)

    def _grants_of(self, agent: str) -> list[Grant]:
        return [grant for grant in list(self.held.values()) if grant.agent == agent]

    def _take_unreleased(self) -> list[Lease]:
        with self._lock:
            taken, self._unreleased = self._unreleased, []
        return taken

    def _renew(self, grant: Grant) -> None:
        with grant.lock:
            if grant.over is not None:
                return
            before = self.clock()
            grant.due = before + self.duration / 3
            try:
                grant.renewed(self._authority.renew(grant.lease), before)
            except LeaseLost:
                pass
            except Unavailable:
                return  # The next beat tries again; until then, its time runs out.
            else:
                self._hooks.renewed(grant)
                return
        self._lose(grant)

    def _lose(self, grant: Grant) -> None:
        """A grant went to others. Who renewed it in time held it for too long."""
        with grant.lock:
            if grant.over is not None:
                return
            silent = self.clock() >= grant.deadline
            trigger = grant.over = RECLAIM_HEARTBEAT if silent else RECLAIM_MAX_HOLD
        self._hooks.lost(grant, trigger)

    def _end_own(self, grant: Grant, trigger: str, seconds: float) -> Reclaim | None:
        """End a grant of this client: first the right to read from cache, then that to write."""
        with grant.lock:
            if grant.over is not None:
                return None
            grant.over = trigger
        self._hooks.lost(grant, trigger)
        self._give_back(grant.lease)
        reclaim = Reclaim(
            grant.artifact, grant.agent, self._instance, trigger, grant.token, seconds
        )
        self._hooks.reclaimed(reclaim)
        return reclaim

    def _tell_waiting(self) -> None:
        with self._freeing:
            self._freed.notify_all()
