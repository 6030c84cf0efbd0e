"""How the agents of one client hold artifacts: grants, and what they mean for copies."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ropewalk.coherence._grants._grant import Grant
from ropewalk.coherence._grants._grants import Grants
from ropewalk.coherence._grants._hooks import Hooks
from ropewalk.coherence._grants._recovery import CrashRecoveryConfig, Reclaim
from ropewalk.coherence._protocol import State, Transition
from ropewalk.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Callable

    from ropewalk.coherence._client import Client
    from ropewalk.coherence._reading import Reading
    from ropewalk.store.asynchronous import Threads


class Granting:
    """Grants as the agents of one client use them."""

    def __init__(
        self,
        client: Client,
        reading: Reading,
        config: CrashRecoveryConfig,
        *,
        tick_seconds: float,
        threads: Threads,
        write: Callable[[str, str, Any], Any],
    ) -> None:
        self._directory, self._telling, self._reading = client.directory, client.telling, reading
        self._instance = client.instance_id
        self.grants = Grants(
            client.authority,
            config,
            instance_id=client.instance_id,
            tick_seconds=tick_seconds,
            clock=client.clock,
            threads=threads,
            hooks=Hooks(
                write=write,
                renewed=self._renewed,
                released=self._released,
                lost=self._lost,
                reclaimed=self._reclaimed,
            ),
        )

    def hold(self, agent: str, artifact: str, timeout: float | None) -> Grant:
        """The exclusive right to write an artifact, and to read it without asking."""
        before = self.grants.held.get((agent, artifact))
        try:
            return self._begin(self.grants.acquire(agent, artifact, timeout))
        except BaseException:
            # Ctrl-C may come at any moment: nobody would ever give back what was got by then.
            self.grants.release_new(agent, artifact, before)
            raise

    async def ahold(
        self,
        agent: str,
        artifact: str,
        timeout: float | None,  # noqa: ASYNC109 - as its twin
    ) -> Grant:
        """The asynchronous twin of `hold`."""
        grant = await self.grants.aacquire(agent, artifact, timeout)
        try:
            return await self.grants.threads.run(lambda: self._begin(grant))
        except BaseException:
            self.grants.abandon(grant)
            raise

    def begin_afresh(self, agent: str, now_tick: int | None) -> None:
        """Forget what an agent had here. Asks nobody, unless it holds something."""
        self._telling.note(self._directory.recovered(agent))
        self.grants.let_go(agent, now_tick)

    def recover(self, agent: str, now_tick: int | None) -> None:
        """Forget what an agent had, and let go of what it held."""
        self._telling.note(self._directory.recovered(agent))
        self.grants.recover(agent, now_tick)

    def _begin(self, grant: Grant) -> Grant:
        """What the agent has is confirmed under the grant, before the grant vouches for it."""
        agent, artifact = grant.agent, grant.artifact
        with suppress(NotFound):
            self._reading.confirmed(agent, artifact)
        directory = self._directory
        self._telling.note(directory.granted(agent, artifact, None, grant.token, grant.deadline))
        if grant.over is not None:  # It was lost while it began.
            self._lost(grant, grant.over)
        return grant

    def _renewed(self, grant: Grant) -> None:
        self._directory.renewed(grant.agent, grant.artifact, grant.token, grant.deadline)

    def _released(self, grant: Grant) -> None:
        self._telling.note(self._directory.released(grant.agent, grant.artifact))

    def _lost(self, grant: Grant, trigger: str) -> None:
        self._telling.note(self._directory.reclaimed(grant.agent, grant.artifact, trigger))

    def _reclaimed(self, reclaim: Reclaim) -> None:
        """Log the end of another client's grant; whether it had written under it is not known."""
        artifact, agent, instance, trigger, token, _ = reclaim
        if instance == self._instance:
            return
        version = self._directory.newest(artifact)
        ended = Transition(
            artifact, agent, State.EXCLUSIVE, State.INVALID, trigger, version, token, instance
        )
        self._telling.note([ended])
