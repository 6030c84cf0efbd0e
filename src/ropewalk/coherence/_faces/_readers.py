"""The methods of `CoherenceCore` that read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ropewalk.coherence._faces._agents import Agents, near_twin
from ropewalk.errors import InvalidInput, NotFound
from ropewalk.store._checks import expect, expect_whole
from ropewalk.store.asynchronous import twin

if TYPE_CHECKING:
    from ropewalk.coherence._artifact import Artifact
    from ropewalk.coherence._outages._degrading import Degrading
    from ropewalk.coherence._reading import Reading


class Readers(Agents):
    """Agents that read artifacts."""

    _reads: Reading | Degrading

    def artifacts(self, prefix: str = "") -> list[str]:
        """The names of the artifacts that are there, sorted."""
        self._check_open()
        self._expect_engine("which artifacts there are")
        return sorted(self._authority.names(prefix))

    def read(self, agent_name: str, artifact: str, *, now_tick: int | None = None) -> Artifact:
        """The newest version of an artifact, within the strategy's bound; raises `NotFound`."""
        if self._closed or agent_name not in self._agents:
            self._expect_agent(agent_name)
            self._expect_artifact(artifact)
        if now_tick is not None or self._grants.held:
            self._grants.beat(agent_name, now_tick)
        try:
            return self._reads.read(agent_name, artifact)
        except (InvalidInput, NotFound, TypeError):
            self._expect_artifact(artifact)  # Here, so that reads that find something are fast.
            raise

    def snapshot(self, agent_name: str, artifacts: Iterable[str]) -> dict[str, Artifact]:
        """The newest versions of several artifacts, all at one moment, by name.

        Raises `NotFound` for the first that is not there.
        """
        self._expect_agent(agent_name)
        # One name alone would be taken for its letters.
        expect(not isinstance(artifacts, str), "artifacts are a list of names", artifacts)
        names = list(artifacts)
        for artifact in names:
            self._expect_artifact(artifact)
        return self._reads.snapshot(agent_name, names)

    def search(
        self,
        agent_name: str,
        prefix: str = "",
        *,
        where: Callable[[Any], bool] | None = None,
        limit: int | None = None,
        offset: int = 0,
    ) -> list[Artifact]:
        """The artifacts whose names begin so and whose values pass, the latest written first.

        All as they are at one moment. Values that do not pass count as not seen.
        """
        self._expect_agent(agent_name)
        expect_whole(offset, 0, "offset")
        if limit is not None:
            expect_whole(limit, 0, "limit")
        return self._reads.search(agent_name, prefix, where, limit, offset)

    # The asynchronous face.

    aartifacts = near_twin(artifacts)
    aread = near_twin(read)
    asnapshot = near_twin(snapshot)
    asearch = twin(search)
