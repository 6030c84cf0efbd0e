"""The grants that puts around another store take, for as long as each of them lasts.

They bear a mark that a `hold` does not have. So whoever finds an item granted can tell whether
it will be free in a moment, or only when its holder is done.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Final

from ropewalk.adapters.langgraph._coherent_identity import NOBODY
from ropewalk.coherence import CoherenceCore
from ropewalk.coherence.grants import Grants, Hooks
from ropewalk.coherence.leases import Reclaim, holder_of, silence_of
from ropewalk.coherence.timers import Patience
from ropewalk.errors import ArtifactHeld, LeaseHeld, LeaseLost, RopewalkError
from ropewalk.store import LeaseRecord

_MARK: Final = "base-put/"
"""What the client's name begins with in the grants of puts."""
_PATIENCE_SECONDS: Final = 0.5
_SILENCES: Final = 1.5
"""How many times as long as a put may be silent it is waited for. One that died is over by then."""


class PutGrants(Grants):
    """The grants of the puts of one client. Safe to share between threads."""

    def __init__(self, core: CoherenceCore) -> None:
        self._turns, self._users = Turns(), core._grants
        self._lent: dict[str, str] = {}
        self._granting = core._granting
        super().__init__(
            core._authority,
            replace(core._grants.config, enabled=False),  # The core looks after all grants.
            instance_id=_MARK + core.instance_id,
            tick_seconds=core.tick_seconds,
            time=core._client.time,
            threads=core._threads,
            hooks=Hooks(write=core.write, reclaimed=self._tell_reclaimed),
        )

    def after_fork(self) -> None:
        """In a child: nobody has a turn, and what was granted is the parent's."""
        super().after_fork()
        self._turns = Turns()
        self._lent = {}

    # Taking.

    @contextmanager
    def granted(self, agent: str, artifacts: Sequence[str]) -> Iterator[None]:
        """The right of one thread of an agent to write artifacts.

        Waits for the puts of others. If somebody holds one of the artifacts, `ArtifactHeld` is
        raised at once.
        """
        waits = self.waits()
        with ExitStack() as stack:
            while True:
                try:
                    stack.enter_context(self.taken(agent, artifacts))
                    break
                except ArtifactHeld as held:
                    if not waits.pause(held.artifact):
                        raise
            yield

    @contextmanager
    def taken(self, agent: str, artifacts: Sequence[str]) -> Iterator[None]:
        """The same, or `ArtifactHeld` without waiting for a grant. A hold of the agent will do."""
        with ExitStack() as stack:
            # All take them in the same order, so no two wait for each other.
            for one in sorted(artifacts):
                stack.enter_context(self._turns.turn(one))
            for one in sorted(artifacts):
                if not self._users.fence_token(agent, one):
                    stack.callback(self.try_acquire(agent, one).release)
            yield

    def is_held_by(self, agent: str, artifact: str) -> bool:
        """Whether an agent holds an artifact itself, by a `hold`."""
        grant = self._users.held.get((agent, artifact))
        return grant is not None and grant.over is None

    # Waiting.

    def waits(self, hold_seconds: float = 0.0) -> Waits:
        """For who meets grants of others: for how long to wait for them."""
        return Waits(self, hold_seconds)

    def seconds_for(self, artifact: str, hold_seconds: float) -> tuple[int, float]:
        """The token of the grant that an artifact has now, and how long at most to wait for it."""
        found = self._look(artifact)
        if found is None:
            return 0, _SILENCES * self.duration  # It was given back just now.
        record, _ = found
        if holder_of(record)[1].startswith(_MARK):
            return record.token, _SILENCES * silence_of(record)
        return record.token, 0.0 if self._is_here(record) else hold_seconds

    def rest(self, seconds: float) -> None:
        """Wait, or until a put of this client is over."""
        with self._freeing:
            self._freed.wait(seconds)

    def _is_here(self, record: LeaseRecord) -> bool:
        # Whoever had a turn knows that a holder in this client is not about to put.
        return holder_of(record)[1] == self._users._instance

    # Writing under them.

    @contextmanager
    def lent(self, agent: str, artifact: str) -> Iterator[None]:
        """Let nobody in particular write an artifact, with the grant of an agent."""
        self._lent[artifact] = agent
        try:
            yield
        finally:
            self._lent.pop(artifact, None)

    def fence_token(self, agent: str, artifact: str) -> int:
        """As `Holding.fence_token`; a hold of the agent goes as well."""
        agent = self._writer(agent, artifact)
        return super().fence_token(agent, artifact) or self._users.fence_token(agent, artifact)

    def refused(
        self, agent: str, tokens: Mapping[str, int], error: LeaseHeld | LeaseLost
    ) -> RopewalkError | None:
        """As `Grants.refused`."""
        agent = self._writer(agent, next(iter(tokens)))
        own = {name: token for name, token in tokens.items() if (agent, name) in self.held}
        others = {name: token for name, token in tokens.items() if name not in own}
        refused = super().refused(agent, own, error) if own else None
        return refused or (self._users.refused(agent, others, error) if others else None)

    def _writer(self, agent: str, artifact: str) -> str:
        return self._lent.get(artifact, agent) if agent == NOBODY else agent

    def _tell_reclaimed(self, reclaim: Reclaim) -> None:
        if not reclaim.instance.startswith(_MARK):  # Of puts, nobody was told that they began.
            self._granting._reclaimed(reclaim)


class Turns:
    """Which thread of this client puts an item next.

    Threads of one client share its name, and so its grants. Whoever waited too long goes
    without, and a put inside a put of the same thread does not wait for it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, tuple[threading.RLock, int]] = {}

    @contextmanager
    def turn(self, artifact: str) -> Iterator[None]:
        """A turn at an artifact, if it comes soon."""
        with self._lock:
            mine, users = self._held.get(artifact, (threading.RLock(), 0))
            self._held[artifact] = mine, users + 1
        got = mine.acquire(timeout=_PATIENCE_SECONDS)
        try:
            yield
        finally:
            if got:
                mine.release()
            with self._lock:
                mine, users = self._held.pop(artifact)
                if users > 1:
                    self._held[artifact] = mine, users - 1


class Waits:
    """The waiting of one call, for one grant after the other."""

    def __init__(self, grants: PutGrants, hold_seconds: float) -> None:
        self._grants, self._hold_seconds = grants, hold_seconds
        self._pauses = Patience(None, grants.clock)
        self._for: tuple[str, int] | None = None
        self._began = 0.0
        self._is_last = False

    def pause(self, artifact: str) -> bool:
        """Wait a moment for who has the grant of an artifact; False if it was long enough.

        Each grant is waited for by itself: that many others put is no reason to give up.
        """
        token, most = self._grants.seconds_for(artifact, self._hold_seconds)
        now = self._grants.clock()
        if self._for != (artifact, token):
            self._for, self._began, self._is_last = (artifact, token), now, False
        if now - self._began >= most:
            # This process may have been stopped since its last try: then there is one more.
            again = most > 0 and not self._is_last
            self._is_last = True
            return again
        self._grants.rest(self._pauses.pause() or 0.0)
        return True
