"""Grants: the exclusive right of one agent to write one artifact.

A grant is a lease in the engine. The holder counts its time from before each request, on the
client's clock; whoever takes it over has waited longer than that on its own clock. A write is
checked against the fencing token of the lease; a read from cache relies on its time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from ropewalk.coherence.leases import (
    RECLAIM_HEARTBEAT,
    RECLAIM_MAX_HOLD,
    CrashRecoveryConfig,
    Reclaim,
    Reclaimer,
    Seen,
    holder_name,
    holder_of,
)
from ropewalk.coherence.protocol import State, Transition
from ropewalk.coherence.timers import RetrySchedule
from ropewalk.errors import (
    ArtifactHeld,
    GrantLost,
    LeaseHeld,
    LeaseLost,
    NotFound,
    RopewalkError,
    StoreClosed,
    Unavailable,
)
from ropewalk.store import Lease, LeaseRecord
from ropewalk.store.asynchronous import Threads
from ropewalk.store.forking import freed_after_fork, reset_after_fork
from ropewalk.store.validation import expect_timeout, expect_whole

if TYPE_CHECKING:
    from ropewalk.coherence.read_path import Client, ReadPath

_NEVER: Final = float("inf")
_LOOKS, _MOMENT = 10, 0.005


RELEASED = "release"
FORKED = "fork"


class Grant:
    """The exclusive right of an agent to write an artifact, as `hold` gives it.

    While it lives, writes of all other agents are refused with `ArtifactHeld`. It is renewed
    in the background. It ends with its `with` block or by `release`; and it can be lost,
    if this process was stopped for too long or the agent held it for too long. Then `write`
    raises `GrantLost`, also if nobody has noticed the loss before.
    """

    __slots__ = (
        "_grants",
        "_until",
        "agent",
        "artifact",
        "began",
        "began_tick",
        "due",
        "end",
        "lease",
        "lock",
        "maker",
        "over",
        "thread",
    )

    def __init__(
        self,
        grants: Grants,
        agent: str,
        artifact: str,
        lease: Lease,
        began: float,
        end: float,
        began_tick: int | None,
    ) -> None:
        self._grants = grants
        self.lock = freed_after_fork(threading.Lock())
        self.agent, self.artifact = agent, artifact
        self.lease = lease
        """What it stands for in the engine."""
        self.began, self.began_tick = began, began_tick
        self.end = end
        """When the longest time that it may be held is over."""
        self.renewed(lease, began)
        self.over: str | None = None
        """Why it is over, as far as this client knows; None while it is not."""
        self.maker: int | None = threading.get_ident()
        """The thread that asked for it; None if a task did."""
        self.thread: int | None = None
        """The thread whose `with` block it is; that must never wait for it."""

    def renewed(self, lease: Lease, before: float) -> None:
        """Count its time from `before`, when the engine had not yet been asked."""
        self.lease = lease
        self._until = before + lease.duration
        self.due = before + lease.duration / 3

    @property
    def token(self) -> int:
        """The fencing token that every write under this grant carries."""
        return self.lease.token

    @property
    def deadline(self) -> float:
        """Until when the agent may count on it, on the client's clock, unless it is renewed."""
        return min(self._until, self.end)

    @property
    def alive(self) -> bool:
        """Whether the agent may count on it now. Asks nobody.

        One that is not may live again: nobody else has it if it can still be renewed.
        """
        return self.over is None and self._grants.clock() < self.deadline

    def expect_held(self) -> None:
        """Raise `GrantLost` if this client knows that it is over."""
        if self.over is not None:
            raise GrantLost(self.artifact, self.agent, self.over)

    def write(self, value: Any) -> Any:
        """Write the artifact; the new `Artifact`. Raises `GrantLost` if the grant is over."""
        self.expect_held()
        return self._grants.write(self, value)

    async def awrite(self, value: Any) -> Any:
        """The asynchronous twin of `write`."""
        return await self._grants.threads.run(lambda: self.write(value))

    def release(self) -> bool:
        """Give it back; False if it was over before. Releasing again does nothing.

        If the engine cannot be reached, it is given back later, or ends by its own silence.
        """
        return self._grants.release(self)

    async def arelease(self) -> bool:
        """The asynchronous twin of `release`."""
        return await self._grants.threads.run(self.release)

    def __enter__(self) -> Grant:
        self.thread = threading.get_ident()
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()

    async def __aenter__(self) -> Grant:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.arelease()

    def __repr__(self) -> str:
        state = f" over: {self.over}" if self.over is not None else ""
        return f"<Grant of {self.artifact!r:.80} for {self.agent!r:.80}, token {self.token}{state}>"


class Grants:
    """All grants of the agents of one client. Safe to share between threads."""

    def __init__(
        self,
        client: Client,
        reading: ReadPath,
        config: CrashRecoveryConfig,
        *,
        write: Callable[[str, str, Any], Any],
        tick_seconds: float = 1.0,
        threads: Threads | None = None,
        background: bool = True,
    ) -> None:
        self._directory, self._recorder, self._reading = client.directory, client.recorder, reading
        self._time, self.clock = client.time, client.clock
        self.config = config
        self.duration = config.heartbeat_timeout_ticks * tick_seconds
        """Seconds after which a grant that is not renewed may be taken over."""
        self.threads = Threads(4) if threads is None else threads
        self._max_hold = config.max_hold_ticks * tick_seconds if config.enabled else _NEVER
        self._tick_seconds = tick_seconds
        self._authority = client.authority
        self._write = write
        self._instance_id = self._instance = client.instance_id
        self._reclaimer = Reclaimer(self._authority, self._instance, self.clock)
        self._background = background
        self._timer = self._time.timer(self, "ropewalk-beat")
        self._tick: int | None = None
        """The last tick that somebody gave."""
        self._ticks: dict[str, int] = {}
        self._next_sweep = 0.0
        self._looked = -_NEVER
        """When `step` last looked for grants to renew."""
        self._closed = self._asleep = False
        self._begin()
        self._start_looking()
        reset_after_fork(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        # Entered by itself: a Condition that is interrupted while it is entered stays locked.
        self._freeing = threading.Lock()
        self._freed = threading.Condition(self._freeing)
        self.held: dict[tuple[str, str], Grant] = {}
        """By agent and artifact, including lost grants that were not released. Mostly empty."""
        self._asking: set[tuple[str, str]] = set()
        self._unreleased: list[Lease] = []
        self._idle = False

    def _start_looking(self) -> None:
        """Start the background sweep for silent holders, if that is enabled."""
        self._asleep = False
        if self.config.enabled and not self._closed:
            self._start()

    def after_fork(self) -> None:
        """In the child of a fork: all grants are the parent's, and this client gets a new name."""
        for grant in self.held.values():
            grant.over = FORKED
        self._instance = f"{self._instance_id}.{os.getpid()}"
        self._reclaimer = Reclaimer(self._authority, self._instance, self.clock)
        self._timer.reset()
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
        # A lease that a waiting agent takes over is reclaimed as any other, and reported so.
        found = self._reclaimer.look(artifact) if self._reclaimer.is_overdue(artifact) else None
        if found is not None and found[1].free_in <= 0 and holder_of(found[0])[0]:
            self._reclaim_silent(found[0], found[1].silent_for, artifact)
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
        self._recorder.transitions(self._directory.released(grant.agent, grant.artifact))
        return self._give_back(grant.lease)

    def _give_back(self, lease: Lease) -> bool:
        try:
            given = self._authority.release(lease)
        except StoreClosed:
            return False  # It expires.
        except Unavailable:
            with self._lock:
                self._unreleased.append(lease)
            self._start()
            return False
        self._notify_waiting()
        return given

    def write(self, grant: Grant, value: Any) -> Any:
        """Write under a grant, which must be the agent's present one."""
        if self.held.get((grant.agent, grant.artifact)) is not grant:
            raise GrantLost(grant.artifact, grant.agent, grant.over or RELEASED)
        return self._write(grant.agent, grant.artifact, value)

    # What every operation asks. Cheap: most agents hold nothing.

    def fence_token(self, agent: str, artifact: str) -> int:
        """The fencing token for a write: that of the agent's grant, or 0 without one.

        Raises `GrantLost` if the agent has lost a grant that it has not released.
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

    # Waiting.

    def acquire(self, agent: str, artifact: str, timeout: float | None = None) -> Grant:
        """Get a grant; waits at most `timeout` seconds for it, without one as long as it takes.

        Raises `ArtifactHeld` if somebody else has it all the while.
        """
        expect_timeout(timeout)
        schedule = RetrySchedule(timeout, self.clock)
        before = self.held.get((agent, artifact))
        try:
            while True:
                try:
                    grant = self.try_acquire(agent, artifact)
                    break
                except ArtifactHeld:
                    self._expect_others(agent, artifact, for_ever=timeout is None)
                    pause = schedule.pause()
                    if pause is None:
                        raise
                with self._freeing:
                    self._time.wait(self._freed, pause)
            return self.confirm_copy(grant)
        except BaseException:
            # Ctrl-C may come at any moment: nobody would ever give back what was got by then.
            got = self.held.get((agent, artifact))
            if got is not None and got is not before and got.maker == threading.get_ident():
                self.release(got)
            raise

    async def aacquire(
        self,
        agent: str,
        artifact: str,
        timeout: float | None = None,  # noqa: ASYNC109 - as its twin
    ) -> Grant:
        """The asynchronous twin of `acquire`; no thread waits for it."""
        import asyncio

        expect_timeout(timeout)
        schedule = RetrySchedule(timeout, self.clock)
        while True:
            request = _Request(self, agent, artifact)
            try:
                return await self.threads.run(request)
            except asyncio.CancelledError:
                request.abandon()
                raise
            except ArtifactHeld:
                pause = schedule.pause()
                if pause is None:
                    raise
            await asyncio.sleep(pause)

    def confirm_copy(self, grant: Grant) -> Grant:
        """Confirm what the agent has of the artifact, before the grant vouches for it."""
        agent, artifact, directory = grant.agent, grant.artifact, self._directory
        with suppress(NotFound):
            self._reading.confirm(agent, artifact)
        self._recorder.transitions(
            directory.granted(agent, artifact, None, grant.token, grant.deadline)
        )
        if grant.over is not None:  # It was lost meanwhile.
            self._lost(grant, grant.over)
        return grant

    def _expect_others(self, agent: str, artifact: str, *, for_ever: bool) -> None:
        """Raise `ArtifactHeld` if the thread would wait for a grant of its own, and deadlock."""
        mine, here = self.held.get((agent, artifact)), threading.get_ident()
        if mine is None or mine.over is not None:
            return
        if mine.thread == here or (for_ever and mine.maker == here):
            raise ArtifactHeld(artifact, agent, here=True)

    # Background work.

    def step(self) -> float | None:
        """Renew and expire grants, retry releases, and sweep; seconds until the next step."""
        now = self.clock()
        if self.config.enabled and not self._closed and now >= self._next_sweep:
            self._next_sweep = now + self.duration / 3
            with suppress(Unavailable):
                self.sweep()
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
        self._timer.close()
        for grant in held:
            self.release(grant)
        for lease in self._take_unreleased():
            self._give_back(lease)

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
        """The error for a commit that was fenced off; None if the writer may retry.

        An expired lease of another client is reclaimed here.
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
        """The lease that blocks a writer; waits a moment for one that is just being reclaimed."""
        for _ in range(_LOOKS):
            found = self._reclaimer.look(artifact)
            if found is None or holder_of(found[0])[0]:
                break
            self._time.sleep(_MOMENT)
        return found

    def _lost_one(self, agent: str, artifact: str) -> GrantLost:
        grant = self.held.get((agent, artifact))
        if grant is not None and grant.over is None:
            self._lose(grant)
        # A grant that is gone from `held` was released during the write.
        over = RELEASED if grant is None else grant.over
        return GrantLost(artifact, agent, over or RECLAIM_HEARTBEAT)

    # Signs of life.

    def touch(self, agent: str, now_tick: int | None = None) -> None:
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
        self.touch(agent, now_tick)
        for grant in self._grants_of(agent):
            self._renew(grant)

    def begin_afresh(self, agent: str, now_tick: int | None = None) -> None:
        """Forget what an agent had, and release its grants. Asks nobody, unless it holds some."""
        self._recorder.transitions(self._directory.recovered(agent))
        self.touch(agent, now_tick)
        for grant in self._grants_of(agent):
            self.release(grant)

    def forget(self, agent: str) -> None:
        """Begin an agent afresh, and forget its ticks."""
        self.begin_afresh(agent)
        self._ticks.pop(agent, None)

    def recover(self, agent: str, now_tick: int | None = None) -> None:
        """Begin an agent afresh, also as to grants from before a restart.

        Leases that an agent of the same name and instance id left in the engine are ended.
        """
        self.begin_afresh(agent, now_tick)
        for record in self._authority.leases():
            if record.holder == self._holder(agent) and self._is_left_over(record):
                self._clear(record)

    # Ending what is silent or held for too long.

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
                    self._reclaimed(reclaim)
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
        last = self._ticks.get(grant.agent)
        if tick is not None and last is not None and tick - last >= timeout:
            return RECLAIM_HEARTBEAT, (tick - last) * self._tick_seconds
        held = self.clock() - grant.began
        if tick is not None and grant.began_tick is not None:
            held = (tick - grant.began_tick) * self._tick_seconds
        return (RECLAIM_MAX_HOLD, held) if held >= longest * self._tick_seconds else None

    # Inside.

    def _start(self, *, soon: bool = False) -> None:
        if self._background and soon:
            self._timer.wake()
        elif self._background:
            self._timer.start()

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
                self._directory.renewed(grant.agent, grant.artifact, grant.token, grant.deadline)
                return
        self._lose(grant)

    def _lose(self, grant: Grant) -> None:
        """A grant went to others. Who renewed it in time held it for too long."""
        with grant.lock:
            if grant.over is not None:
                return
            silent = self.clock() >= grant.deadline
            trigger = grant.over = RECLAIM_HEARTBEAT if silent else RECLAIM_MAX_HOLD
        self._lost(grant, trigger)

    def _end_own(self, grant: Grant, trigger: str, seconds: float) -> Reclaim | None:
        """End a grant of this client: first the right to read from cache, then that to write."""
        with grant.lock:
            if grant.over is not None:
                return None
            grant.over = trigger
        self._lost(grant, trigger)
        self._give_back(grant.lease)
        reclaim = Reclaim(
            grant.artifact, grant.agent, self._instance, trigger, grant.token, seconds
        )
        self._reclaimed(reclaim)
        return reclaim

    def _notify_waiting(self) -> None:
        with self._freeing:
            self._freed.notify_all()

    def _reclaim_silent(
        self, record: LeaseRecord, seconds: float, artifact: str | None = None
    ) -> Reclaim | None:
        reclaim = self._reclaimer.take_over(record, seconds, artifact)
        if reclaim is not None:
            self._notify_waiting()
            if reclaim.agent:
                self._reclaimed(reclaim)
        return reclaim

    def _lost(self, grant: Grant, trigger: str) -> None:
        """An agent of this client has lost its grant: it may not read from cache."""
        self._recorder.transitions(self._directory.reclaimed(grant.agent, grant.artifact, trigger))

    def _reclaimed(self, reclaim: Reclaim) -> None:
        """Log the end of another client's grant; whether it had written under it is not known."""
        artifact, agent, instance, trigger, token, _ = reclaim
        if instance == self._instance:
            return  # Its own loss is logged.
        version = self._directory.newest(artifact)
        ended = Transition(
            artifact, agent, State.EXCLUSIVE, State.INVALID, trigger, version, token, instance
        )
        self._recorder.transitions([ended])

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
        self._notify_waiting()


class _Request:
    """A request of a task that may be cancelled; what it gets then is given back."""

    def __init__(self, grants: Grants, agent: str, artifact: str) -> None:
        self._grants, self._agent, self._artifact = grants, agent, artifact
        self._lock = threading.Lock()
        self._got: Grant | None = None
        self._abandoned = False

    def __call__(self) -> Grant:
        grant = self._grants.try_acquire(self._agent, self._artifact)
        grant.maker = None  # It is a task's, whatever thread has asked for it.
        try:
            self._grants.confirm_copy(grant)
        except BaseException:
            grant.release()
            raise
        with self._lock:
            self._got, abandoned = grant, self._abandoned
        if abandoned:
            grant.release()
        return grant

    def abandon(self) -> None:
        """Nobody wants it any more. Waits for nothing."""
        with self._lock:
            self._abandoned, got = True, self._got
        if got is not None:
            threading.Thread(target=got.release, name="ropewalk-release", daemon=True).start()
