"""Clients with grants on any store, for tests of grants alone."""

from __future__ import annotations

from typing import Any

from ropewalk.codec import Codec
from ropewalk.coherence.grants import Grant, Grants, Hooks
from ropewalk.coherence.leases import CrashRecoveryConfig, Reclaim
from ropewalk.coherence.store_authority import StoreAuthority
from ropewalk.coherence.timers import Time
from ropewalk.errors import LeaseHeld, LeaseLost
from ropewalk.store import Fence, Store, ref_name, space_name
from ropewalk.testing.helpers import Clock

SPACE = space_name("coherence", "shared")
TIMEOUT = 9.0


class Client:
    """One client: its grants, what it was told, and writes that only count."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        instance: str = "here",
        *,
        background: bool = False,
        **config: Any,
    ) -> None:
        self.store, self.clock = store, clock
        self.lost: list[tuple[str, str, str]] = []
        self.reclaimed: list[Reclaim] = []
        config = {"heartbeat_timeout_ticks": int(TIMEOUT), "max_hold_ticks": 100, **config}
        self.grants = Grants(
            StoreAuthority(store, "shared", Codec()),
            CrashRecoveryConfig(**config),
            instance_id=instance,
            time=Time(clock),
            hooks=Hooks(
                write=self.write,
                lost=self._note_lost,
                reclaimed=self.reclaimed.append,
            ),
            background=background,
        )

    def _note_lost(self, grant: Grant, trigger: str) -> None:
        self.lost.append((grant.agent, grant.artifact, trigger))

    def write(self, agent: str, artifact: str, value: object) -> int:
        """Write as the core does, as far as fences go; the number of the operation."""
        while True:
            token = self.grants.fence_token(agent, artifact)
            try:
                fence = Fence(ref_name("grant", artifact), token)
                return self.store.commit(SPACE, fence=fence).sequence
            except (LeaseHeld, LeaseLost) as error:
                refused = self.grants.fence_failed(agent, artifact, error)
                if refused is not None:
                    raise refused from error
