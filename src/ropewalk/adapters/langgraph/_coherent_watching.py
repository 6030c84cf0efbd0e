"""Looking on at what agents do to the items of a `CoherentStore`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple

from ropewalk.adapters.langgraph._coherent_identity import Convention
from ropewalk.adapters.langgraph._coherent_names import Scope
from ropewalk.adapters.langgraph.store.operations import check_labels
from ropewalk.coherence import ArtifactChange, CoherenceCore


class ItemChange(NamedTuple):
    """A version of an item that came to be, as `watch` tells it."""

    namespace: Scope
    key: str
    version: int
    agent: str
    """Who put or deleted it."""
    sequence: int
    """Where to go on: items that were put together share it."""
    deleted: bool


class Watching:
    """Tells of artifacts as of the items that they are."""

    def __init__(self, core: CoherenceCore, convention: Convention) -> None:
        self._core, self._convention = core, convention

    def watch(
        self, prefix: Scope, after: int | None, timeout: float | None
    ) -> Iterator[ItemChange]:
        """Each new version below a prefix, as it comes."""
        asked, beginning = self._asked(prefix)
        changes = self._core.watch(prefix=beginning, after=after, timeout=timeout)
        return (self._shown(asked, one) for one in changes)

    async def awatch(
        self,
        prefix: Scope,
        after: int | None,
        timeout: float | None,  # noqa: ASYNC109 - as its twin
    ) -> AsyncIterator[ItemChange]:
        """The same for an event loop; no thread waits."""
        asked, beginning = self._asked(prefix)
        async for one in self._core.awatch(prefix=beginning, after=after, timeout=timeout):
            yield self._shown(asked, one)

    def _asked(self, prefix: Scope) -> tuple[Scope, str]:
        """A prefix, and what the names of artifacts below it begin with."""
        check_labels(prefix)
        asked = tuple(prefix)
        return asked, self._convention.range(asked).prefix

    def _shown(self, asked: Scope, one: ArtifactChange) -> ItemChange:
        place = self._convention.shown(asked, one.artifact, one.agent)
        return ItemChange(*place, one.version, one.agent, one.sequence, one.deleted)
