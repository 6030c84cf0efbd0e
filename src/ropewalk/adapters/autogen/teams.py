"""`TeamTimeline`: the saved states of a team as a timeline; needs no AutoGen."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Protocol

from ropewalk.errors import Conflict, NotFound
from ropewalk.store.asynchronous import finishing
from ropewalk.timeline import Checkpoint, Timeline


class HasState(Protocol):
    """A team, an agent, a runtime or a model context of AutoGen."""

    async def save_state(self) -> Mapping[str, Any]:
        """Its state."""

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""


class TeamTimeline(Timeline):
    """A timeline whose states are those of a team, or of anything else with `save_state`.

    Stores the state whenever `save_state` is called, as one step that takes the room of what
    changed since the last. What a timeline can do, this can: `rollback`, `undo`, `branch` and
    `fork` choose where the next `load_state` goes on. A task that is cancelled stops waiting; what
    it began is finished first, then the next call begins.
    """

    _loaded: str | None = None
    """The checkpoint at which the team is; None before the first."""

    @finishing
    async def save_state(
        self,
        team: HasState,
        description: str = "",
        *,
        metadata: Mapping[str, Any] | None = None,
    ) -> Checkpoint:
        """Save the state of a team that is not running, as the next step of the current branch.

        Raises `RefMoved`, with nothing saved, if the branch is not where this object last loaded
        or saved: somebody else saved a step or rolled the team back, so load it again. The states
        of a team that two processes ran are not merged.
        """
        async with self._turns:
            state = await team.save_state()

            def save() -> Checkpoint:
                if self._loaded is None and self.head is not None:
                    raise Conflict(
                        f"timeline {self.name!r} has steps already, and the team has not loaded "
                        "them: call load_state() first, or choose another name"
                    )
                return self.checkpoint(state, metadata, description, expect=self._loaded)

            made = await self._threads.run(save)
            self._loaded = made.id
            return made

    @finishing
    async def load_state(self, team: HasState) -> Checkpoint:
        """Put a team where the current branch is, and return that checkpoint.

        Raises `NotFound` if nothing was saved yet.
        """
        async with self._turns:
            head = await self.ahead()
            if head is None:
                raise NotFound(f"timeline {self.name!r} has no state yet: nothing was saved")
            await team.load_state(await self._threads.run(lambda: head.state))
            self._loaded = head.id
            return head

    async def ahead(self) -> Checkpoint | None:
        """The asynchronous twin of `head`."""
        return await self._threads.run(lambda: self.head)

    @cached_property
    def _turns(self) -> asyncio.Lock:
        return asyncio.Lock()
