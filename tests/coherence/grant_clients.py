"""Clients with grants on any store, for tests of grants alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ropewalk.codec import Codec
from ropewalk.coherence.directory import Directory
from ropewalk.coherence.grants import Grants
from ropewalk.coherence.leases import CrashRecoveryConfig
from ropewalk.coherence.logs import Logs, Recorder
from ropewalk.coherence.protocol import ContentCache, Transition
from ropewalk.coherence.read_path import Client as Parts
from ropewalk.coherence.read_path import ReadPath
from ropewalk.coherence.store_authority import StoreAuthority
from ropewalk.coherence.strategies import build_strategy
from ropewalk.coherence.timers import Time
from ropewalk.errors import LeaseHeld, LeaseLost
from ropewalk.store import Fence, Store, ref_name, space_name
from ropewalk.testing.helpers import Clock

SPACE = space_name("coherence", "shared")
TIMEOUT = 9.0


class Ends(Recorder):
    """Keeps the ends of grants that were not given back."""

    def __init__(self) -> None:
        super().__init__(Logs())
        self.seen: list[Transition] = []

    def transitions(self, transitions: Sequence[Transition], *_: Any) -> None:
        self.seen += [one for one in transitions if one.trigger.startswith("reclaim")]


class Client:
    """One client: its grants, what became of them, and writes that only count."""

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
        config = {"heartbeat_timeout_ticks": int(TIMEOUT), "max_hold_ticks": 100, **config}
        codec, self._ends = Codec(), Ends()
        parts = Parts(
            name="shared",
            instance_id=instance,
            authority=StoreAuthority(store, "shared", codec),
            directory=Directory(),
            contents=ContentCache(1),
            strategy=build_strategy("lazy"),
            recorder=self._ends,
            codec=codec,
            time=Time(clock),
            clock=clock,
        )
        self.grants = Grants(
            parts,
            ReadPath(parts),
            CrashRecoveryConfig(**config),
            write=self.write,
            background=background,
        )

    @property
    def lost(self) -> list[tuple[str, str, str]]:
        """The grants of its own agents that it knows it lost."""
        return [(one.agent, one.artifact, one.trigger) for one in self._ends.seen if not one.home]

    @property
    def reclaimed(self) -> list[Transition]:
        """The grants of other clients that it ended."""
        return [one for one in self._ends.seen if one.home]

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
