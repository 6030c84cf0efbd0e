"""The methods of `CoherenceCore` that look on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from os import PathLike
from typing import TYPE_CHECKING

from ropewalk.coherence._faces._agents import Agents
from ropewalk.store.asynchronous import twin

if TYPE_CHECKING:
    from ropewalk.coherence._authorities._authority import ArtifactChange
    from ropewalk.coherence._authorities._timeline import ArtifactTimeline
    from ropewalk.coherence._watching import Watching


class Onlookers(Agents):
    """Those who look at what agents do."""

    _watching: Watching

    def watch(
        self,
        artifacts: Iterable[str] | None = None,
        *,
        prefix: str = "",
        after: int | None = None,
        timeout: float | None = None,
    ) -> Iterator[ArtifactChange]:
        """Yield each new version of some artifacts, of those below a prefix, or of all.

        From operation `after + 1` on, or from now on. Ends when none came for `timeout`
        seconds; without one, never.
        """
        self._check_open()
        self._expect_engine("what changes")
        position = self._authority.sequence() if after is None else after
        return self._watching.watch(artifacts, prefix, position, timeout)

    async def awatch(
        self,
        artifacts: Iterable[str] | None = None,
        *,
        prefix: str = "",
        after: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - as its twin
    ) -> AsyncIterator[ArtifactChange]:
        """The asynchronous twin of `watch`; no thread waits for it."""
        self._check_open()
        self._expect_engine("what changes")
        position = await self._threads.run(self._authority.sequence) if after is None else after
        changes = self._watching.awatch(artifacts, prefix, position, timeout, self._threads)
        async for change in changes:
            yield change

    def history(self, artifact: str) -> ArtifactTimeline:
        """The versions of an artifact, as a timeline to look at.

        A step has the number of its `version`, by which it is also found, and says whether
        the artifact was `deleted` there. Raises `NotFound` for an artifact that never was.
        """
        from ropewalk.coherence._authorities._timeline import ArtifactTimeline

        self._check_open()
        self._expect_artifact(artifact)
        self._expect_engine("the history of an artifact")
        found = self._authority.timeline(artifact)
        assert isinstance(found, ArtifactTimeline)
        return found

    def record_to(self, folder: str | PathLike[str]) -> None:
        """Record the run in a folder from now on, for `ropewalk replay`.

        Best before the first agent works: replay cannot judge what it has not seen begin.
        """
        self._check_open()
        self._client.telling.record_to(folder)

    ahistory = twin(history)
