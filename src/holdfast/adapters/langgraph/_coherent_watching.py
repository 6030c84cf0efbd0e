"""Looking on at what agents do to the items of a `CoherentStore`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import NamedTuple

from holdfast.adapters.langgraph._coherent_identity import Convention
from holdfast.adapters.langgraph._coherent_names import Scope
from holdfast.adapters.langgraph._store_ops import check_labels
from holdfast.coherence import ArtifactChange, CoherenceCore


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
        shown = self._shown(prefix)
        changes = self._core.watch(after=after, timeout=timeout)
        return (found for one in changes if (found := shown(one)) is not None)

    async def awatch(
        self,
        prefix: Scope,
        after: int | None,
        timeout: float | None,  # noqa: ASYNC109 - as its twin
    ) -> AsyncIterator[ItemChange]:
        """The same for an event loop; no thread waits."""
        shown = self._shown(prefix)
        async for one in self._core.awatch(after=after, timeout=timeout):
            found = shown(one)
            if found is not None:
                yield found

    def _shown(self, prefix: Scope) -> Callable[[ArtifactChange], ItemChange | None]:
        """What who asks for a prefix is told of a change; None if that is another's."""
        check_labels(prefix)
        asked = tuple(prefix)
        _, beginning = self._convention.range(asked)

        def shown(one: ArtifactChange) -> ItemChange | None:
            if not one.artifact.startswith(beginning):
                return None
            place = self._convention.shown(asked, one.artifact, one.agent)
            return ItemChange(*place, one.version, one.agent, one.sequence, one.deleted)

        return shown
