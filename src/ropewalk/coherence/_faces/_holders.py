"""The methods of `CoherenceCore` that are about grants and signs of life."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ropewalk.coherence._faces._agents import Agents
from ropewalk.store._haste import hasty
from ropewalk.store.asynchronous import twin

if TYPE_CHECKING:
    from ropewalk.coherence._grants._grant import Grant
    from ropewalk.coherence._grants._recovery import Reclaim


class Holders(Agents):
    """Agents that hold artifacts."""

    def hold(self, agent_name: str, artifact: str, *, timeout: float | None = None) -> Grant:
        """The exclusive right of an agent to write an artifact, for a `with` block.

        While it lasts the writes of all others are refused with `ArtifactHeld`, and the
        agent's reads need not ask. Waits at most `timeout` seconds for another holder,
        without one as long as it takes, and raises `ArtifactHeld` then. An agent that holds it
        already waits as others do, but a thread never waits for ever for what it holds itself.
        """
        self._expect_agent(agent_name)
        self._expect_artifact(artifact)
        self._expect_engine("a grant")
        return self._granting.hold(agent_name, artifact, timeout)

    async def ahold(
        self,
        agent_name: str,
        artifact: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - as its twin
    ) -> Grant:
        """The asynchronous twin of `hold`; no thread waits for it."""
        self._expect_agent(agent_name)
        self._expect_artifact(artifact)
        self._expect_engine("a grant")
        return await self._granting.ahold(agent_name, artifact, timeout)

    def heartbeat(self, agent_name: str, now_tick: int | None = None) -> None:
        """Say that an agent is alive, and renew what it holds. Every operation says the first."""
        self._expect_agent(agent_name)
        if self._degrading is not None and self._degrading.is_active:
            self._grants.beat(agent_name, now_tick)  # Nobody waits for an engine that is away.
        else:
            self._grants.heartbeat(agent_name, now_tick)

    def recover(self, agent_name: str, now_tick: int | None = None) -> None:
        """Begin an agent afresh, for example after a restart: without copies and grants."""
        self._expect_agent(agent_name)
        if self._degrading is not None and self._degrading.is_active:
            with hasty(0):
                self._granting.begin_afresh(agent_name, now_tick)
            self._expect_engine("what an agent left behind")
        self._granting.recover(agent_name, now_tick)

    def enforce_stable_grant_timeouts(
        self,
        current_tick: int | None = None,
        heartbeat_timeout_ticks: int | None = None,
        max_hold_ticks: int | None = None,
        on_reclaim: Callable[[Reclaim], None] | None = None,
    ) -> list[Reclaim]:
        """End the grants of agents that are silent or hold for too long; what was ended.

        With `crash_recovery` enabled that is done in the background. `current_tick` is compared
        with the ticks that agents of this object gave; other processes are judged by how long
        this one has seen their grants unchanged, or in the same hands.
        """
        self._check_open()
        self._expect_engine("who holds what")
        return self._grants.enforce(
            current_tick, heartbeat_timeout_ticks, max_hold_ticks, on_reclaim
        )

    # The asynchronous face.

    aheartbeat = twin(heartbeat)
    arecover = twin(recover)
    aenforce_stable_grant_timeouts = twin(enforce_stable_grant_timeouts)
