"""Clients with grants on any store, for tests of grants alone."""

from __future__ import annotations

from typing import Any

from ropewalk.coherence._grants._grant import Grant
from ropewalk.coherence._grants._grants import Grants
from ropewalk.coherence._grants._hooks import Hooks
from ropewalk.coherence._grants._recovery import CrashRecoveryConfig, Reclaim
from ropewalk.errors import LeaseHeld, LeaseLost
from ropewalk.store import Fence, Lease, LeaseRecord, Store, ref_name, space_name, split_name
from ropewalk.testing._stores._base import Clock

SPACE = space_name("coherence", "shared")
TIMEOUT = 9.0


class Leases:
    """The leases of artifacts in a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def acquire(self, artifact: str, holder: str, duration: float) -> Lease:
        return self._store.acquire(SPACE, ref_name("grant", artifact), holder, duration)

    def renew(self, lease: Lease) -> Lease:
        return self._store.renew(lease)

    def release(self, lease: Lease) -> bool:
        return self._store.release(lease)

    def seize(self, record: LeaseRecord, holder: str, duration: float) -> Lease | None:
        return self._store.seize(SPACE, record, holder, duration)

    def leases(self) -> list[LeaseRecord]:
        return self._store.leases(SPACE, "grant/")

    def lease_name(self, artifact: str) -> str:
        return ref_name("grant", artifact)

    def leased(self, record: LeaseRecord) -> str | None:
        return split_name(record.name)[1]


class Client:
    """One client: its grants, what it was told, and writes that only count."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        instance: str = "here",
        *,
        beats: bool = False,
        **config: Any,
    ) -> None:
        self.store, self.clock = store, clock
        self.lost: list[tuple[str, str, str]] = []
        self.reclaimed: list[Reclaim] = []
        config = {"heartbeat_timeout_ticks": int(TIMEOUT), "max_hold_ticks": 100, **config}
        self.grants = Grants(
            Leases(store),
            CrashRecoveryConfig(**config),
            instance_id=instance,
            clock=clock,
            hooks=Hooks(
                write=self.write,
                lost=self._note_lost,
                reclaimed=self.reclaimed.append,
            ),
            beats=beats,
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
