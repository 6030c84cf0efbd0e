"""The exclusive right of one agent to write one artifact."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from ropewalk.errors import GrantLost
from ropewalk.store import Lease
from ropewalk.store.forking import freed_after_fork

if TYPE_CHECKING:
    from ropewalk.coherence._grants._holding import Holding

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
        grants: Holding,
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
        """When it was held for as long as it may be."""
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
