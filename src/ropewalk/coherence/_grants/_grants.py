"""The grants of one client among those of others: signs of life, and what ends without them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from ropewalk.coherence._grants._grant import RELEASED, Grant
from ropewalk.coherence._grants._reclaiming import holder_of
from ropewalk.coherence._grants._recovery import RECLAIM_HEARTBEAT, RECLAIM_MAX_HOLD, Reclaim, Seen
from ropewalk.coherence._grants._waiting import Waiting
from ropewalk.errors import (
    ArtifactHeld,
    GrantLost,
    LeaseHeld,
    LeaseLost,
    RopewalkError,
    Unavailable,
)
from ropewalk.store import LeaseRecord
from ropewalk.store._checks import expect_whole

_LOOKS, _MOMENT = 10, 0.005


class Grants(Waiting):
    """All grants of one client. Safe to share between threads."""

    _next_sweep = 0.0

    def _ask_for(self, agent: str, artifact: str) -> Grant:
        # A lease that is taken over by who waits for it is a reclaim as any other: it is told.
        found = self._reclaimer.look(artifact) if self._reclaimer.is_overdue(artifact) else None
        if found is not None and found[1].free_in <= 0 and holder_of(found[0])[0]:
            self._reclaim_silent(found[0], found[1].silent_for, artifact)
        return super()._ask_for(agent, artifact)

    # When a write was fenced off.

    def refused(
        self, agent: str, tokens: Mapping[str, int], error: LeaseHeld | LeaseLost
    ) -> RopewalkError | None:
        """As `fence_failed`, for a commit that has a fence for each of several artifacts."""
        granted = [artifact for artifact, token in tokens.items() if token]
        if isinstance(error, LeaseLost):
            for artifact in granted if len(granted) > 1 else ():
                grant = self.held.get((agent, artifact))
                if grant is not None:
                    self._renew(grant)
                if grant is None or grant.over is not None:
                    return self._lost_one(agent, artifact)
            return self._lost_one(agent, granted[0]) if len(granted) == 1 else None
        for artifact in tokens.keys() - granted:
            refused = self.fence_failed(agent, artifact, error)
            if refused is not None:
                return refused
        return None

    def fence_failed(self, agent: str, artifact: str, error: RopewalkError) -> RopewalkError | None:
        """What a writer is told whose commit was fenced off; None if it may simply try again.

        A lease that nobody renewed for its whole time is ended here: its holder is gone.
        """
        if isinstance(error, LeaseLost):
            return self._lost_one(agent, artifact)
        found = self._look(artifact)
        if found is None:
            return None
        record, seen = found
        if self._is_left_over(record):
            self._clear(record)
            return None
        if seen.free_in <= 0 and self._reclaim_silent(record, seen.silent_for, artifact):
            return None
        return ArtifactHeld(artifact, holder_of(record)[0], max(seen.free_in, 0.0))

    def _look(self, artifact: str) -> tuple[LeaseRecord, Seen] | None:
        """The lease that is in a writer's way; waits a moment for one that is just being ended."""
        for _ in range(_LOOKS):
            found = self._reclaimer.look(artifact)
            if found is None or holder_of(found[0])[0]:
                break
            time.sleep(_MOMENT)
        return found

    def _lost_one(self, agent: str, artifact: str) -> GrantLost:
        grant = self.held.get((agent, artifact))
        if grant is not None and grant.over is None:
            self._lose(grant)
        # One that is not here any more was given back while its agent wrote.
        over = RELEASED if grant is None else grant.over
        return GrantLost(artifact, agent, over or RECLAIM_HEARTBEAT)

    # Signs of life.

    def beat(self, agent: str, now_tick: int | None = None) -> None:
        """Note that an agent is alive: every operation does. Never waits.

        Without a tick, its tick is the last one that was given here. If the beat is late,
        what the agent holds is renewed now.
        """
        if now_tick is not None:
            expect_whole(now_tick, 0, "now_tick")
            self._tick = now_tick
        elif agent in self._ticks:
            now_tick = self._tick
        if now_tick is not None and now_tick > self._ticks.get(agent, -1):
            self._ticks[agent] = now_tick
        now = self.clock()
        if now >= self._looked + self.duration / 3:
            self._looked = now
            if any(one.over is None and now >= one.due for one in self._grants_of(agent)):
                self._start(soon=True)

    def heartbeat(self, agent: str, now_tick: int | None = None) -> None:
        """Note that an agent is alive, and renew its grants now."""
        self.beat(agent, now_tick)
        for grant in self._grants_of(agent):
            self._renew(grant)

    def let_go(self, agent: str, now_tick: int | None = None) -> None:
        """Give back everything that an agent holds here."""
        self.beat(agent, now_tick)
        for grant in self._grants_of(agent):
            self.release(grant)

    def forget(self, agent: str) -> None:
        """Give back everything that an agent holds here, and know nothing of it any more."""
        self.let_go(agent)
        self._ticks.pop(agent, None)

    def recover(self, agent: str, now_tick: int | None = None) -> None:
        """Let go of everything that an agent held here, also before it was started again.

        What an agent of the same name and the same instance id left in the engine is ended.
        """
        self.let_go(agent, now_tick)
        for record in self._authority.leases():
            if record.holder == self._holder(agent) and self._is_left_over(record):
                self._clear(record)

    # Ending what is silent or held for too long.

    def step(self) -> float | None:
        """Do what is to be done at each beat, and look at the grants of others."""
        now = self.clock()
        if self.config.enabled and not self._closed and now >= self._next_sweep:
            self._next_sweep = now + self.duration / 3
            with suppress(Unavailable):
                self.sweep()
        return super().step()

    def sweep(self, timeout: float = 0.0, max_hold: float | None = None) -> list[Reclaim]:
        """End the grants of other clients that are silent or held for too long."""
        longest = self._max_hold if max_hold is None else max_hold
        ended: list[Reclaim] = []
        for record, seen in self._reclaimer.look_at_all():
            agent, instance = holder_of(record)
            reclaim = None
            if instance == self._instance:
                if seen.free_in <= 0 and self._is_left_over(record):
                    self._clear(record)
            elif seen.free_in <= 0 and seen.silent_for >= timeout:
                reclaim = self._reclaim_silent(record, seen.silent_for)
            elif agent and seen.held_for >= longest:
                reclaim = self._reclaimer.seize(record, seen.held_for)
                if reclaim is not None:
                    self._hooks.reclaimed(reclaim)
            if reclaim is not None and agent:
                ended.append(reclaim)
        if self._reclaimer.busy:
            self._start()
        return ended

    def enforce(
        self,
        current_tick: int | None = None,
        heartbeat_timeout_ticks: int | None = None,
        max_hold_ticks: int | None = None,
        on_reclaim: Callable[[Reclaim], None] | None = None,
    ) -> list[Reclaim]:
        """End now what is silent or held for too long; what was ended.

        `current_tick` is compared with the ticks that the agents of this client gave. Of other
        clients it is only known for how long this one has seen their grants.
        """
        for name, given in (
            ("heartbeat_timeout_ticks", heartbeat_timeout_ticks),
            ("max_hold_ticks", max_hold_ticks),
        ):
            if given is not None:
                expect_whole(given, 1, name)
        if current_tick is not None:
            expect_whole(current_tick, 0, "current_tick")
            self._tick = current_tick
        timeout = heartbeat_timeout_ticks or self.config.heartbeat_timeout_ticks
        longest = max_hold_ticks or self.config.max_hold_ticks
        ended: list[Reclaim] = []
        for grant in list(self.held.values()):
            found = self._overdue(grant, current_tick, timeout, longest)
            reclaim = None if found is None else self._end_own(grant, *found)
            ended += [] if reclaim is None else [reclaim]
        ended += self.sweep(
            (heartbeat_timeout_ticks or 0) * self._tick_seconds, longest * self._tick_seconds
        )
        if on_reclaim is not None:
            for reclaim in ended:
                on_reclaim(reclaim)
        return ended

    def _overdue(
        self, grant: Grant, tick: int | None, timeout: int, longest: int
    ) -> tuple[str, float] | None:
        """Why a grant of this client must end, and after how many seconds; None if it need not."""
        heard = self._ticks.get(grant.agent)
        if tick is not None and heard is not None and tick - heard >= timeout:
            return RECLAIM_HEARTBEAT, (tick - heard) * self._tick_seconds
        held = self.clock() - grant.began
        if tick is not None and grant.began_tick is not None:
            held = (tick - grant.began_tick) * self._tick_seconds
        return (RECLAIM_MAX_HOLD, held) if held >= longest * self._tick_seconds else None

    # Inside.

    def _reclaim_silent(
        self, record: LeaseRecord, seconds: float, artifact: str | None = None
    ) -> Reclaim | None:
        reclaim = self._reclaimer.take_over(record, seconds, artifact)
        if reclaim is not None:
            self._tell_waiting()
            if reclaim.agent:
                self._hooks.reclaimed(reclaim)
        return reclaim

    def _is_left_over(self, record: LeaseRecord) -> bool:
        """Whether a lease is this client's, by its name, and nobody here knows of it."""
        agent, instance = holder_of(record)
        if instance != self._instance or not agent:
            return False
        with self._lock:
            known = [*self._asking, *self.held]
        return all(
            self._authority.lease_name(name) != record.name for who, name in known if who == agent
        )

    def _clear(self, record: LeaseRecord) -> None:
        self._reclaimer.clear(record)
        self._tell_waiting()
